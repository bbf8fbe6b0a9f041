package h2

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Header blocks of answers are literals without indexing (RFC 7541 §6.2.2): nothing has to be
// remembered for them, and those of most answers are the same bytes.

var (
	usualHeaders  = appendField(appendStatus(nil, 200), "content-type", "application/grpc")
	usualTrailers = appendField(nil, "grpc-status", "0")
)

// noTable is the change of the table's size to 0 (RFC 7541 §6.3).
var noTable = []byte{0x20}

// sendHeaders adds a header block to out. A client that has made its table smaller is told first that it isn't used: it may
// refuse a block that doesn't begin so (§4.2). With mu held.
func (c *conn) sendHeaders(block []byte, flags uint8, stream uint32) {
	if c.resize {
		c.resize, block = false, slices.Concat(noTable, block)
	}
	c.out = appendHeaders(c.out, block, flags, stream, c.frameLimit)
}

func appendStatus(b []byte, code int) []byte {
	if code == 200 {
		return append(b, 0x88) // entry 8 of the static table
	}
	return appendField(b, ":status", strconv.Itoa(code))
}

func appendField(b []byte, name, value string) []byte {
	return appendString(appendString(append(b, 0), name), value)
}

// appendString adds a string that isn't compressed, with its length as an integer with a prefix
// of seven bits (RFC 7541 §5.1).
func appendString(b []byte, s string) []byte {
	n := len(s)
	if n < 127 {
		return append(append(b, byte(n)), s...)
	}
	b = append(b, 127)
	for n -= 127; n >= 128; n >>= 7 {
		b = append(b, byte(n)|128)
	}
	return append(append(b, byte(n)), s...)
}

func appendMetadata(b []byte, md metadata.MD) []byte {
	for k, vs := range md {
		k = strings.ToLower(k)
		if reserved(k) || k == "content-type" || k == "te" || strings.HasPrefix(k, ":") {
			continue
		}
		for _, v := range vs {
			if strings.HasSuffix(k, "-bin") {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			b = appendField(b, k, v)
		}
	}
	return b
}

// begin sends the headers of an answer, if it hasn't been done. With conn.mu held.
func (st *stream) begin() {
	if st.headersSent {
		return
	}
	block, encoding := usualHeaders, st.req.encoding
	if st.req.subtype != "" || encoding != "" || len(st.header) > 0 {
		block = appendField(appendStatus(nil, 200), "content-type", "application/grpc"+st.req.subtype)
		if encoding != "" {
			block = appendField(block, "grpc-encoding", encoding)
		}
		block = appendMetadata(block, st.header)
	}
	st.headersSent = true
	c := st.c
	c.sent = true
	c.sendHeaders(block, 0, st.id)
}

// trailersOf returns the block that ends an answer. It has the headers too, if none have been sent
// and the handler has set none. With conn.mu held.
func (st *stream) trailersOf(s *status.Status) []byte {
	if len(st.header) > 0 {
		st.begin()
	}
	if st.headersSent && s.Code() == codes.OK && len(st.trailer) == 0 {
		return usualTrailers
	}
	var b []byte
	if !st.headersSent {
		b = appendField(appendStatus(b, 200), "content-type", "application/grpc"+st.req.subtype)
		st.headersSent = true
	}
	return appendMetadata(appendGRPCStatus(b, s), st.trailer)
}

func appendGRPCStatus(b []byte, s *status.Status) []byte {
	b = appendField(b, "grpc-status", strconv.Itoa(int(s.Code())))
	if m := s.Message(); m != "" {
		b = appendField(b, "grpc-message", percentEncoded(m))
	}
	if p := s.Proto(); len(p.GetDetails()) > 0 {
		if details, err := proto.Marshal(p); err == nil {
			b = appendField(b, "grpc-status-details-bin", base64.RawStdEncoding.EncodeToString(details))
		}
	}
	return b
}

// percentEncoded is a grpc-message: everything but printable ASCII is encoded, and the percent
// sign.
func percentEncoded(s string) string {
	plain := func(c byte) bool { return c >= ' ' && c <= '~' && c != '%' }
	if !slices.ContainsFunc([]byte(s), func(c byte) bool { return !plain(c) }) {
		return s
	}
	var b strings.Builder
	for _, r := range s { // what isn't UTF-8 becomes U+FFFD
		for _, c := range []byte(string(r)) {
			if plain(c) {
				b.WriteByte(c)
			} else {
				fmt.Fprintf(&b, "%%%02X", c)
			}
		}
	}
	return b.String()
}
