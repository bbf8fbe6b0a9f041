package kube

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/test/process"
)

// certManager has the definitions of the resources in tls.yaml.
const certManager = "github.com/cert-manager/cert-manager@v1.21.2"

// A kube-apiserver on three servers of stoa accepts each manifest, without a warning (its admission
// checks that pods are "restricted", too).
func TestManifests(t *testing.T) {
	k := start(t, process.StartT(t, process.Spec{Nodes: 3, Partitions: 2, Timeout: 2 * time.Minute}).Endpoints())
	k.apply(definitions(t), "--server-side")
	k.apply(k.root + "/deploy/kubernetes/namespace.yaml")
	for _, of := range []string{"certificates", "issuers"} {
		require.Eventually(t, func() bool {
			_, err := k.kubectl("", "-n", "stoa", "get", of+".cert-manager.io")
			return err == nil
		}, time.Minute, 100*time.Millisecond)
	}
	out, err := k.kubectl("", "kustomize", k.root+"/deploy/kubernetes")
	require.NoError(t, err, out)
	require.Equal(t, 15, strings.Count(k.dryRun(out), "server dry run"))
	text, err := os.ReadFile(k.root + "/deploy/kubernetes/restore.yaml")
	require.NoError(t, err)
	k.dryRun(strings.NewReplacer("NUMBER", "0", "FILE", "a.snapshot").Replace(string(text)))
	text, err = os.ReadFile(k.root + "/deploy/kubernetes/static-pod.yaml")
	require.NoError(t, err)
	k.dryRun(string(text))

	text, err = os.ReadFile(k.root + "/deploy/kubernetes/sidecar.yaml")
	require.NoError(t, err)
	k.dryRun(string(text))

	_, err = k.kubectl(strings.Replace(out, "maxUnavailable", "maxUnavailabel", 1), "apply", "--dry-run=server", "-f", "-")
	require.Error(t, err, "it would accept anything")
}

// apiserver is a running kube-apiserver.
type apiserver struct {
	t              *testing.T
	url, root, dir string
	process        *component
}

func start(t *testing.T, endpoints []string) *apiserver {
	t.Helper()
	root, err := process.Root()
	require.NoError(t, err)
	dir := t.TempDir()
	host := fmt.Sprintf("127.%d.%d.1", 10+mathrand.IntN(200), 10+mathrand.IntN(200))
	key := filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(key, newKey(t), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokens"), []byte("admin,admin,1,system:masters\n"), 0o600))
	k := &apiserver{t: t, url: "https://" + host + ":6443", root: root, dir: dir}
	k.process = k.run("kube-apiserver",
		"--etcd-servers="+strings.Join(endpoints, ","), "--etcd-compaction-interval=10s",
		"--bind-address="+host, "--advertise-address=10.0.0.1", "--secure-port=6443",
		"--cert-dir="+dir, "--token-auth-file="+filepath.Join(dir, "tokens"), "--authorization-mode=AlwaysAllow",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-cluster-ip-range=10.96.0.0/16", "--disable-admission-plugins=ServiceAccount")
	k.waitReady()
	return k
}

func (k *apiserver) waitReady() {
	k.t.Helper()
	eventually(k.t, "kube-apiserver is ready", func() bool {
		out, err := k.kubectl("", "get", "--raw", "/readyz")
		return err == nil && out == "ok"
	})
}

// patience is for a machine that is busy with other things.
const patience = 5 * time.Minute

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(500 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func newKey(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// kubectl returns both outputs.
func (k *apiserver) kubectl(in string, args ...string) (out string, err error) {
	cmd := exec.CommandContext(k.t.Context(), "kubectl", append([]string{"--server=" + k.url, "--token=admin", "--insecure-skip-tls-verify",
		"--cache-dir=" + k.t.TempDir()}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG=/dev/null")
	cmd.Stdin = strings.NewReader(in)
	text, err := cmd.CombinedOutput()
	return string(bytes.TrimSpace(text)), err
}

func (k *apiserver) apply(file string, flags ...string) {
	k.t.Helper()
	out, err := k.kubectl("", append([]string{"apply", "-f", file}, flags...)...)
	require.NoError(k.t, err, out)
}

// dryRun has the server validate and admit what it doesn't store.
func (k *apiserver) dryRun(manifests string) string {
	k.t.Helper()
	out, err := k.kubectl(manifests, "apply", "--dry-run=server", "-f", "-")
	require.NoError(k.t, err, out)
	require.NotContains(k.t, out, "Warning")
	return out
}

func definitions(t *testing.T) (dir string) {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", certManager)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOWORK=off", "GO111MODULE=on")
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	var module struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &module))
	return filepath.Join(module.Dir, "deploy", "crds")
}
