// Build builds bin/stoa-clock, the server of package clock, so that tests find it in Go's cache: all of
// the standard library is compiled anew the first time.
package main

import (
	"fmt"
	"os"

	"github.com/stoa-kv/stoa/test/process"
)

func main() {
	bin, err := process.WithClock()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(bin.Path)
}
