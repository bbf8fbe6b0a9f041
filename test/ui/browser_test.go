package ui

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var (
	axe      = flag.String("axe", "../../bin/axe/node_modules/axe-core/axe.min.js", "axe-core")
	pictures = flag.String("pictures", "", "the directory to write screenshots to; none: none are")
)

// limit bounds the time that anything takes to appear.
const limit = time.Minute

// browser is a tab of a browser of its own, at a server's page.
type browser struct {
	t    *testing.T
	ctx  context.Context
	base string // the server's URL

	mu       sync.Mutex
	requests []string // URLs
	problems []string
}

func open(t *testing.T, base string) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	require.NoError(t, err, "apt-get install chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.WindowSize(1280, 800), chromedp.WSURLReadTimeout(limit),
		// The browser's own questions to its makers.
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true))
	alloc, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the browser's end
		cancel()
	})
	b := &browser{t: t, ctx: ctx, base: base}
	chromedp.ListenTarget(ctx, b.hear)
	require.NoError(t, chromedp.Run(ctx)) // the browser ends with the context that starts it
	b.do(network.Enable(), log.Enable(), runtime.Enable(), emulation.SetDeviceMetricsOverride(1280, 800, 1, false), chromedp.Navigate(base+"/ui/"))
	return b
}

// hear keeps what the browser reports. A refused request is part of some tests.
func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	case *log.EventEntryAdded:
		if e.Entry.Source != log.SourceNetwork {
			b.problems = append(b.problems, e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		text, _ := json.Marshal(e.Args)
		b.problems = append(b.problems, string(text))
	}
}

// asked returns how many requests there were, and forgets them.
func (b *browser) asked() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.requests)
	for _, url := range b.requests {
		require.True(b.t, strings.HasPrefix(url, b.base+"/"), "the page asks %s", url)
	}
	require.Empty(b.t, b.problems)
	b.requests = nil
	return n
}

func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	require.NoError(b.t, chromedp.Run(ctx, actions...), "%s", b.text("body"))
}

// view goes to a view and waits for a text there.
func (b *browser) view(hash, text string) {
	b.t.Helper()
	b.do(chromedp.Evaluate("location.hash = "+quoted(hash), nil))
	b.see(text)
}

func quoted(s string) string {
	q, _ := json.Marshal(s)
	return string(q)
}

func (b *browser) text(selector string) (text string) {
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	_ = chromedp.Run(ctx, chromedp.Evaluate("document.querySelector("+quoted(selector)+")?.innerText ?? ''", &text))
	return text
}

// see waits until the page shows a text.
func (b *browser) see(text string) {
	b.t.Helper()
	for deadline := time.Now().Add(limit); !strings.Contains(b.text("body"), text); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("%q is not shown, but:\n%s", text, b.text("body"))
		}
	}
}

// press clicks on the first element of the kind with this text.
func (b *browser) press(kind, text string) {
	b.t.Helper()
	find := "[..." + "document.querySelectorAll(" + quoted(kind) + ")].find(e => e.innerText.trim() === " + quoted(text) + ")"
	var found bool
	require.Eventually(b.t, func() bool {
		b.do(chromedp.Evaluate(find+" !== undefined", &found))
		return found
	}, limit, 50*time.Millisecond, "no %s %q", kind, text)
	b.do(chromedp.Evaluate(find+".click()", nil))
}

// set puts a text into a field.
func (b *browser) set(selector, text string) {
	b.t.Helper()
	b.do(chromedp.Evaluate("document.querySelector("+quoted(selector)+").value = "+quoted(text), nil))
}

func (b *browser) scheme(name string) {
	b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}))
}

// accessible has axe-core look at the page in both colour schemes.
func (b *browser) accessible(view string) {
	b.t.Helper()
	source, err := os.ReadFile(*axe)
	require.NoError(b.t, err, "make test-ui gets it")
	b.do(chromedp.Evaluate(string(source)+"; undefined", nil))
	for _, scheme := range []string{"dark", "light"} {
		b.scheme(scheme)
		var violations []struct {
			ID    string `json:"id"`
			Nodes []struct {
				HTML    string `json:"html"`
				Summary string `json:"failureSummary"`
			} `json:"nodes"`
		}
		const run = `axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"]}).then(r => r.violations)`
		b.do(chromedp.Evaluate(run, &violations, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
		for _, v := range violations {
			for _, n := range v.Nodes {
				b.t.Errorf("%s, %s: %s: %s: %s", view, scheme, v.ID, n.HTML, n.Summary)
			}
		}
	}
}
