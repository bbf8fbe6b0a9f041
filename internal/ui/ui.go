package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed static
var embedded embed.FS

// Options are the parts of the server that the page uses.
type Options struct {
	Gateway http.Handler // of the paths below /v3/
	// Users reports whether authentication is enabled. Without it nobody can log in, and the
	// page is read-only.
	Users func() bool
}

// New returns the handler of /ui and all paths below it. Requests of pages of other origins are
// refused; the caller has to check the Host header of plain requests, against DNS rebinding.
func New(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /ui", http.RedirectHandler("/ui/", http.StatusMovedPermanently))
	for name, f := range files() {
		mux.Handle("GET /ui/"+name, f)
	}
	mux.Handle("POST /ui/v3/", http.StripPrefix("/ui", &calls{o}))
	return secured(http.NewCrossOriginProtection().Handler(mux))
}

// policy lets the page load its own files and send requests to its own server.
var policy = strings.Join([]string{
	"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
	"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
}, "; ")

func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// file is an embedded file.
type file struct{ name, kind, tag, content string }

// files are all of them, by their paths; that of index.html is empty, as it is the directory's.
func files() map[string]file {
	all := map[string]file{}
	entries, err := fs.ReadDir(embedded, "static")
	if err != nil {
		panic(err) // the program is built without them
	}
	for _, e := range entries {
		content, err := embedded.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(content)
		f := file{name: e.Name(), kind: kinds[path.Ext(e.Name())], tag: `"` + hex.EncodeToString(sum[:8]) + `"`, content: string(content)}
		at := e.Name()
		if at == "index.html" {
			at = "{$}"
		}
		all[at] = f
	}
	return all
}

// kinds doesn't depend on the machine's own list of types.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

// ServeHTTP implements http.Handler. The browser asks each time whether the file is still the
// same: after an upgrade of the server it isn't.
func (f file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", f.kind)
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", f.tag)
	http.ServeContent(w, r, f.name, time.Time{}, strings.NewReader(f.content))
}

// isJSON reports whether the body is declared as JSON, which the forms of a foreign page can't do.
func isJSON(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}
