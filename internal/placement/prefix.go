package placement

import "bytes"

// Prefix is the placement prefix of a key: its directory down to two levels. A
// key straight under the root, or without a slash, is its own prefix.
//
//	/registry/pods/default/web  →  /registry/pods/
//	/service/db                 →  /service/
//	queue/a/1                   →  queue/a/
//	/x, foo                     →  the key itself
func Prefix(key []byte) []byte {
	if n := directory(key); n > 0 {
		return key[:n]
	}
	return key
}

// directory is the length of the key's directory down to two levels, 0 if it
// lies in none.
func directory(key []byte) int {
	first, deep := levels(key)
	if deep > 0 {
		return deep
	}
	return first
}

// levels returns where the first and the second level of a key's directory
// end, 0 for a level that the key doesn't have.
func levels(key []byte) (first, second int) {
	from := 0
	if len(key) > 0 && key[0] == '/' {
		from = 1
	}
	i := bytes.IndexByte(key[from:], '/')
	if i < 0 {
		return 0, 0
	}
	first = from + i + 1
	j := bytes.IndexByte(key[first:], '/')
	if j < 0 {
		return first, 0
	}
	return first, first + j + 1
}

// shared returns the longest prefix that every key of [key, end) is certain to
// have. Besides the common prefix of the two bounds, it recognizes the usual way to
// write "everything under p": an end that is p with its last byte incremented.
func shared(key, end []byte) []byte {
	n := 0
	for n < len(key) && n < len(end) && key[n] == end[n] {
		n++
	}
	if n < len(key) && len(end) == n+1 && end[n] == key[n]+1 {
		n++
	}
	return key[:n]
}
