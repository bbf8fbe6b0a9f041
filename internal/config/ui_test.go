package config

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page isn't a way around the certificates that the client port demands.
func TestCheckUI(t *testing.T) {
	const ui, plain, secure = " --enable-ui", " --listen-metrics-urls=http://127.0.0.1:1", " --listen-metrics-urls=https://127.0.0.1:1"
	for line, want := range map[string]string{
		"":                                  "",
		ui:                                  "set --listen-metrics-urls",
		ui + plain:                          "",
		ui + plain + " --client-cert-auth":  "must be https",
		ui + plain + " --trusted-ca-file=a": "must be https",
		ui + secure + " --client-cert-auth": "",
		plain + " --client-cert-auth":       "",
		ui + secure + ",http://127.0.0.1:2" + " --client-cert-auth": "http://127.0.0.1:2 must be https",
	} {
		c, err := parse(t, line)
		if want != "" {
			require.ErrorContains(t, err, want, line)
			continue
		}
		require.NoError(t, err, line)
		require.Equal(t, line != "" && line[:len(ui)] == ui, c.EnableUI, line)
	}
}

// The documented command is one that a server takes.
func TestDocumentedUI(t *testing.T) {
	text, err := os.ReadFile("../../docs/ui.md")
	require.NoError(t, err)
	_, after, ok := strings.Cut(string(text), "```sh\nbin/stoa ")
	require.True(t, ok)
	line, _, _ := strings.Cut(after, "\n")
	c, err := parse(t, line)
	require.NoError(t, err)
	require.True(t, c.EnableUI)
	require.Contains(t, string(text), c.ListenMetricsURLs[0].String()+"/ui/")
}
