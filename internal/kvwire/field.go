package kvwire

import "google.golang.org/protobuf/encoding/protowire"

// bytesField consumes a field at the front of s, if it is there.
func bytesField(s string, tag byte) (v, rest string) {
	if len(s) < 2 || s[0] != tag {
		return "", s
	}
	n, from := uint64(s[1]), 2
	if n >= 0x80 {
		n, from = varint(s, 1)
	}
	to := from + int(n)
	return s[from:to], s[to:]
}

// number consumes a number at the front of s, if it is there.
func number(s string, tag byte) (v int64, rest string) {
	if len(s) < 2 || s[0] != tag {
		return 0, s
	}
	if b := s[1]; b < 0x80 {
		return int64(b), s[2:]
	}
	n, end := varint(s, 1)
	return int64(n), s[end:]
}

// varint reads the varint at place i of s and returns where it ends.
func varint(s string, i int) (v uint64, end int) {
	for shift := 0; ; shift += 7 {
		b := s[i]
		i++
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, i
		}
	}
}

func sizeBytes(v []byte) int {
	if len(v) == 0 {
		return 0
	}
	return 1 + protowire.SizeBytes(len(v))
}

func sizeNumber(v int64) int {
	if v == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(uint64(v))
}

func appendBytes(b []byte, tag byte, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(append(b, tag), v)
}

func appendNumber(b []byte, tag byte, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, tag), uint64(v))
}
