package wal

import (
	"encoding/binary"
	"hash/crc32"
)

// A frame is what one Append writes: a head of 24 bytes, the records, zeros up
// to the next multiple of 8.
//
//	 0  u32  checksum of bytes 4..24, begun with the segment's seed
//	 4  u32  chain: checksum of bytes 8..24 and the records, begun with the
//	         chain value of the frame before
//	 8  u32  length of the records in bytes
//	12  u8   type
//	13  3 B  zero
//	16  u64  durable: up to this offset of the segment a Sync had succeeded
//	         when the frame was written
//
// The head has a checksum of its own so that a frame can be recognised behind
// a damaged one, where the chain is broken; its durable offset is then the
// proof that the damaged bytes had been synced.
const (
	frameHeadBytes = 24
	frameAlign     = 8
	maxFrameBytes  = 1 << 31
)

type frameType uint8

const (
	frameRecords frameType = 1
	// frameMark has no records. Close writes one for its durable offset.
	frameMark frameType = 2
	// frameSeal records that the next segment is durable: a sealed segment
	// without a successor means that a file was lost.
	frameSeal frameType = 3
)

type frame struct {
	kind    frameType
	length  uint32
	chain   uint32
	durable int64
}

// size is the frame's length in the segment, padding included.
func (f frame) size() int64 { return align(frameHeadBytes + int64(f.length)) }

func align(n int64) int64 { return (n + frameAlign - 1) &^ (frameAlign - 1) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// finishFrame fills in the head of b, reserved in front of the records, pads
// b, and returns it with the new chain value.
func finishFrame(b []byte, kind frameType, seed, chain uint32, durable int64) ([]byte, uint32) {
	binary.LittleEndian.PutUint32(b[8:], uint32(len(b)-frameHeadBytes))
	b[12], b[13], b[14], b[15] = byte(kind), 0, 0, 0
	binary.LittleEndian.PutUint64(b[16:], uint64(durable))
	chain = crc32.Update(chain, castagnoli, b[8:])
	binary.LittleEndian.PutUint32(b[4:], chain)
	binary.LittleEndian.PutUint32(b, crc32.Update(seed, castagnoli, b[4:frameHeadBytes]))
	for len(b)%frameAlign != 0 {
		b = append(b, 0)
	}
	return b, chain
}

// decodeFrameHead decodes the head of a frame of the segment with this seed
// from the beginning of b, or returns false.
func decodeFrameHead(b []byte, seed uint32) (frame, bool) {
	if len(b) < frameHeadBytes {
		return frame{}, false
	}
	f := frame{
		kind:    frameType(b[12]),
		length:  binary.LittleEndian.Uint32(b[8:]),
		chain:   binary.LittleEndian.Uint32(b[4:]),
		durable: int64(binary.LittleEndian.Uint64(b[16:])),
	}
	// The cheap test first: judge tries this at every 8 bytes.
	if f.kind < frameRecords || f.kind > frameSeal || b[13]|b[14]|b[15] != 0 {
		return frame{}, false
	}
	sum := crc32.Update(seed, castagnoli, b[4:frameHeadBytes])
	return f, sum == binary.LittleEndian.Uint32(b) && f.durable >= 0
}

// checkChain reports whether b, head and records of f, continues the chain.
func checkChain(b []byte, f frame, chain uint32) bool {
	return crc32.Update(chain, castagnoli, b[8:]) == f.chain
}
