package replica

import "slices"

// extract takes those that match out of a list. Both keep their order.
func extract[T any](list []T, match func(T) bool) (rest, matching []T) {
	rest = slices.DeleteFunc(list, func(v T) bool {
		if !match(v) {
			return false
		}
		matching = append(matching, v)
		return true
	})
	return rest, matching
}
