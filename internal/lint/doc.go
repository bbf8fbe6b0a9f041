// Package lint checks the project's rules that a compiler can't check, as
// tests: the allowed imports of each package (imports_test.go), and that
// every package is documented (docs_test.go).
//
// It has no code of its own and nothing imports it.
package lint
