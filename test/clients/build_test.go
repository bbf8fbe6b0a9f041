package clients

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// outputDir is where a client is built. It stays, so that the next build is quick.
func outputDir(t *testing.T, root, lang string) string {
	dir := filepath.Join(root, "bin", "clients", lang)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	return dir
}

// call runs a program of a build in a directory and returns its standard output.
func call(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out, messages strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.String(), messages.String())
	}
	return strings.TrimSpace(out.String())
}

func buildPython(t *testing.T, root, out string) []string {
	source := filepath.Join(root, "test", "clients", "python")
	python := filepath.Join(out, "venv", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		call(t, out, nil, "python3", "-m", "venv", "venv")
	}
	call(t, out, nil, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", filepath.Join(source, "requirements.txt"))

	// etcd's .proto files import one another as etcd/api/…, and annotations for its gateway.
	include := filepath.Join(out, "proto")
	require.NoError(t, os.RemoveAll(include))
	require.NoError(t, os.MkdirAll(filepath.Join(include, "etcd"), 0o755))
	etcd, gateway := module(t, root, "go.etcd.io/etcd/api/v3"), module(t, root, "github.com/grpc-ecosystem/grpc-gateway/v2")
	require.NoError(t, os.Symlink(etcd, filepath.Join(include, "etcd", "api")))
	require.NoError(t, os.Symlink(filepath.Join(gateway, "protoc-gen-openapiv2"), filepath.Join(include, "protoc-gen-openapiv2")))
	google := call(t, out, nil, python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
	call(t, include, nil, python, "-m", "grpc_tools.protoc", "-I.", "-I"+google, "--python_out="+out, "--grpc_python_out="+out,
		"etcd/api/etcdserverpb/rpc.proto", "etcd/api/mvccpb/kv.proto", "etcd/api/authpb/auth.proto", "etcd/api/versionpb/version.proto",
		"protoc-gen-openapiv2/options/annotations.proto", "protoc-gen-openapiv2/options/openapiv2.proto")
	copyFiles(t, source, out, "scenario.py")
	return []string{python, filepath.Join(out, "scenario.py")}
}

// module is the directory of a module that go.mod requires.
func module(t *testing.T, root, path string) string {
	return call(t, root, nil, "go", "list", "-m", "-f", "{{.Dir}}", path)
}

// buildJavaScript copies what there is, because npm installs beside package.json.
func buildJavaScript(t *testing.T, root, out string) []string {
	copyFiles(t, filepath.Join(root, "test", "clients", "javascript"), out, "package.json", "package-lock.json", "scenario.mjs")
	call(t, out, nil, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	return []string{"node", filepath.Join(out, "scenario.mjs")}
}

func buildJava(t *testing.T, root, out string) []string {
	pom := filepath.Join(root, "test", "clients", "java", "pom.xml")
	call(t, out, nil, "mvn", "--quiet", "--batch-mode", "--file", pom, "-Dclients.out="+out, "compile", "dependency:copy-dependencies")
	return []string{"java", "-cp", filepath.Join(out, "classes") + ":" + filepath.Join(out, "dependency", "*"), "Scenario"}
}

func buildRust(t *testing.T, root, out string) []string {
	manifest := filepath.Join(root, "test", "clients", "rust", "Cargo.toml")
	protoc := os.Getenv("PROTOC")
	if protoc == "" {
		protoc = crateDir(t, out, manifest, "protoc-bin-vendored-linux-"+map[string]string{"amd64": "x86_64", "arm64": "aarch_64"}[runtime.GOARCH]) + "/bin/protoc"
	}
	call(t, out, []string{"PROTOC=" + protoc}, "cargo", "build", "--quiet", "--locked", "--manifest-path", manifest, "--target-dir", out)
	return []string{filepath.Join(out, "debug", "scenario")}
}

// crateDir is where cargo keeps the source of a crate.
func crateDir(t *testing.T, out, manifest, crate string) string {
	var metadata struct {
		Packages []struct {
			Name string
			Path string `json:"manifest_path"`
		}
	}
	text := call(t, out, nil, "cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", manifest)
	require.NoError(t, json.Unmarshal([]byte(text), &metadata))
	for _, p := range metadata.Packages {
		if p.Name == crate {
			return filepath.Dir(p.Path)
		}
	}
	t.Fatalf("etcd-client needs protoc: there is no crate %s; PROTOC names another", crate)
	return ""
}

func copyFiles(t *testing.T, from, to string, names ...string) {
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(to, name), text, 0o644))
	}
}
