package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A setting that is to keep others out, and doesn't, is named.
func TestUnguardedPortsAreWarnings(t *testing.T) {
	const certificate = " --cert-file=c --key-file=k --peer-cert-file=c --peer-key-file=k" +
		" --listen-client-urls=https://127.0.0.1:1 --advertise-client-urls=https://127.0.0.1:1 --listen-peer-urls=https://127.0.0.1:2"
	for line, want := range map[string]map[string]string{
		certificate: {},
		certificate + " --client-cert-auth --trusted-ca-file=a --client-crl-file=r --peer-client-cert-auth --peer-trusted-ca-file=a --peer-cert-allowed-cn=x": {},

		certificate + " --client-cert-auth": {"client-cert-auth": "each authority that this system trusts"},
		certificate + " --client-crl-file=r --client-cert-allowed-hostname=h --peer-cert-allowed-cn=x --peer-crl-file=r": {
			"client-crl-file": "no certificates are demanded", "client-cert-allowed-hostname": "without --client-cert-auth or --trusted-ca-file",
			"peer-cert-allowed-cn": "without --peer-client-cert-auth or --peer-trusted-ca-file", "peer-crl-file": "no certificates are demanded",
		},
		" --auto-tls --client-cert-auth --peer-auto-tls --peer-trusted-ca-file=a": {
			"client-cert-auth": "with --auto-tls", "peer-trusted-ca-file": "with --peer-auto-tls",
		},
		" --peer-cert-file=c --peer-key-file=k --peer-client-cert-auth --peer-trusted-ca-file=a": {"peer-client-cert-auth": "the URL has no TLS"},
	} {
		c, err := parse(t, "--name=a --data-dir=d"+line)
		require.NoError(t, err, line)
		got := warnings(c)
		for name, text := range want {
			require.Contains(t, got[name], text, "%s: %s", line, name)
			delete(got, name)
		}
		require.Empty(t, got, line)
	}
}
