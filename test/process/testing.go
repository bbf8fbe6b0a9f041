package process

import (
	"os"
	"testing"
)

// StartT starts a cluster that ends with the test. Its directory is kept, and
// named, when the test fails.
func StartT(t testing.TB, spec Spec) *Cluster {
	t.Helper()
	c := NewT(t, spec)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// NewT is StartT without the start.
func NewT(t testing.TB, spec Spec) *Cluster {
	t.Helper()
	if spec.Binary.Path == "" {
		bin, err := UnderTest()
		if err != nil {
			t.Fatal(err)
		}
		spec.Binary = bin
	}
	if spec.Dir == "" {
		dir, err := TempDir(t.Name())
		if err != nil {
			t.Fatal(err)
		}
		spec.Dir = dir
	}
	c, err := New(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("data and logs of the servers: %s", spec.Dir)
			return
		}
		os.RemoveAll(spec.Dir)
	})
	return c
}
