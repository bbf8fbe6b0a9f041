package script

import "testing"

// CheckPlaces fails if the verifier could not find every part of a source that
// it has read among its tokens: its places would be wrong.
func CheckPlaces(t testing.TB, source []byte, host []Function) {
	t.Helper()
	globals := map[string]*closure{}
	for i := range host {
		globals[host[i].Name] = &closure{native: &host[i]}
	}
	var v *verifier
	defer func() {
		_ = recover()
		if v != nil && v.lost {
			t.Fatalf("tokens and tree came apart at %v in %q", v.at, source)
		}
	}()
	check(source, defaultBounds)
	statements := parseSource(source)
	v = newVerifier(source, defaultBounds, globals)
	v.file(statements)
}
