// Package lint holds the rules of the house that a compiler can't check, as
// tests: who may import whom (imports_test.go), and that every package says
// what it is for (docs_test.go).
//
// It has no code of its own and nothing imports it.
package lint
