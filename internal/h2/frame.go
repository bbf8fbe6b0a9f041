package h2

import (
	"encoding/binary"
	"fmt"
)

// preface is what a client's connection begins with (RFC 9113 §3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

const (
	frameHeader = 9
	maxFrame    = 16 << 10 // of a payload: what this side takes, HTTP/2's default
	maxWindow   = 1<<31 - 1
	maxStreamID = 1<<31 - 1
)

type frameType uint8

const (
	frameData frameType = iota
	frameHeaders
	framePriority
	frameReset
	frameSettings
	framePush
	framePing
	frameGoAway
	frameWindow
	frameContinuation
)

const (
	flagEndStream  = 1
	flagAck        = 1
	flagEndHeaders = 4
	flagPadded     = 8
	flagPriority   = 32
)

// The settings of RFC 9113 §6.5.2 that matter here.
const (
	settingTable         = 1
	settingPush          = 2
	settingMaxStreams    = 3
	settingInitialWindow = 4
	settingMaxFrame      = 5
	settingMaxHeaderList = 6
)

// errorCode is an error code of RFC 9113 §7.
type errorCode uint32

const (
	noError         errorCode = 0
	protocolError   errorCode = 1
	flowControl     errorCode = 3
	streamClosed    errorCode = 5
	frameSize       errorCode = 6
	refusedStream   errorCode = 7
	cancelled       errorCode = 8
	compression     errorCode = 9
	enhanceYourCalm errorCode = 11
)

// frame is one frame; its payload is good until the next is read.
type frame struct {
	typ     frameType
	flags   uint8
	stream  uint32
	payload []byte
}

func (f *frame) has(flag uint8) bool { return f.flags&flag != 0 }

// connError ends a connection.
type connError struct {
	code errorCode
	text string
}

func (e *connError) Error() string { return fmt.Sprintf("h2: error %d: %s", e.code, e.text) }

func fatal(code errorCode, text string) error { return &connError{code, text} }

// unpadded removes padding, and reports false if there is more of it than payload.
func (f *frame) unpadded() ([]byte, bool) {
	if !f.has(flagPadded) {
		return f.payload, true
	}
	if len(f.payload) == 0 || int(f.payload[0]) >= len(f.payload) {
		return nil, false
	}
	return f.payload[1 : len(f.payload)-int(f.payload[0])], true
}

func appendHeader(b []byte, n int, t frameType, flags uint8, stream uint32) []byte {
	b = append(b, byte(n>>16), byte(n>>8), byte(n), byte(t), flags)
	return binary.BigEndian.AppendUint32(b, stream)
}

func appendReset(b []byte, stream uint32, code errorCode) []byte {
	return binary.BigEndian.AppendUint32(appendHeader(b, 4, frameReset, 0, stream), uint32(code))
}

func appendWindow(b []byte, stream, n uint32) []byte {
	return binary.BigEndian.AppendUint32(appendHeader(b, 4, frameWindow, 0, stream), n)
}

func appendPing(b []byte, flags uint8, data []byte) []byte {
	return append(appendHeader(b, 8, framePing, flags, 0), data...)
}

func appendGoAway(b []byte, last uint32, code errorCode, text string) []byte {
	b = appendHeader(b, 8+len(text), frameGoAway, 0, 0)
	b = binary.BigEndian.AppendUint32(b, last)
	return append(binary.BigEndian.AppendUint32(b, uint32(code)), text...)
}

func appendSetting(b []byte, id uint16, value uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, id), value)
}

// appendHeaders adds a header block, in as many frames as the peer's limit asks for.
func appendHeaders(b []byte, block []byte, flags uint8, stream uint32, limit int) []byte {
	t := frameHeaders
	for len(block) > limit {
		b = append(appendHeader(b, limit, t, flags, stream), block[:limit]...)
		block, t, flags = block[limit:], frameContinuation, 0
	}
	return append(appendHeader(b, len(block), t, flags|flagEndHeaders, stream), block...)
}
