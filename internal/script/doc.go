// Package script verifies, compiles and runs extensions.
package script
