package sheet

import (
	"fmt"
	"strconv"
	"strings"
)

// Numbers reads numbers with commas between them, none below least.
func Numbers(list string, least int) ([]int, error) {
	var out []int
	for _, f := range strings.Split(list, ",") {
		n, err := strconv.Atoi(f)
		if err != nil || n < least {
			return nil, fmt.Errorf("%q is not a list of numbers", list)
		}
		out = append(out, n)
	}
	return out, nil
}
