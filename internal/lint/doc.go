// Package lint checks the project's rules that a compiler can't check, as
// tests: the allowed imports of each package (imports_test.go), that intervals
// aren't measured with the wall clock (clock_test.go), that every package is
// documented (docs_test.go), and of the pages that they can be reached
// (pages_test.go), that their commands are run (blocks_test.go), and that files,
// functions, flags and modules that they name exist (names_test.go).
//
// It has no code of its own and nothing imports it.
package lint
