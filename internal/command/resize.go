package command

import (
	"encoding/binary"
	"fmt"
)

// AppendResize appends the body of a Resize command, the number of partitions, to b.
func AppendResize(b []byte, partitions int) []byte {
	return binary.AppendUvarint(b, uint64(partitions))
}

// DecodeResize reads the body of a Resize command.
func DecodeResize(b []byte) (partitions int, err error) {
	n, used := binary.Uvarint(b)
	if used <= 0 || used != len(b) || n == 0 || n > 1<<16 {
		return 0, fmt.Errorf("decode number of partitions from %d bytes", len(b))
	}
	return int(n), nil
}
