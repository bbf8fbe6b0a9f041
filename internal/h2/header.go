package h2

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// request is what a header block says. Calls with the same block share it.
type request struct {
	path       string
	method     *method // nil: there is none
	base       context.Context
	timeout    time.Duration // 0: none
	encoding   string        // grpc-encoding, if it isn't identity
	compressor encoding.Compressor
	subtype    string // of application/grpc
	md         metadata.MD
	httpStatus int            // to be refused with, or 0
	refusal    *status.Status // or this, or nil
	err        errorCode      // of a malformed request
}

const (
	maxRemembered    = 64 // header blocks of a connection
	maxContinuations = 16 // frames of a block
)

// headers decodes the header blocks of a connection.
type headers struct {
	c      *conn
	fields []hpack.HeaderField
	size   uint32

	// A block of nothing but references to the tables changes neither them nor, while they stay
	// as they are, its meaning. Clients send one for most calls.
	known map[string]*request

	// Of a block in several frames.
	block  []byte
	frames int
	first  frame
}

func (h *headers) init(c *conn) {
	h.c = c
	c.hpack.SetEmitFunc(h.emit)
	c.hpack.SetMaxStringLength(int(c.s.o.MaxHeaderList) + 2*maxFrame) // a longer one ends the connection
	h.known = map[string]*request{}
}

func (h *headers) emit(f hpack.HeaderField) {
	h.size += f.Size()
	if h.size <= h.c.s.o.MaxHeaderList {
		h.fields = append(h.fields, f)
	}
}

// onlyReferences tells whether a block is indexed fields alone (RFC 7541 §6.1), each of one byte.
func onlyReferences(block []byte) bool {
	for _, b := range block {
		if b <= 0x80 || b == 0xff {
			return false
		}
	}
	return true
}

// decode returns what a block says. The error ends the connection: its tables are out of step.
func (h *headers) decode(block []byte) (*request, error) {
	remember := onlyReferences(block)
	if remember {
		if r := h.known[string(block)]; r != nil {
			return r, nil
		}
	} else {
		clear(h.known)
	}
	h.fields, h.size = h.fields[:0], 0
	if _, err := h.c.hpack.Write(block); err != nil {
		return nil, fatal(compression, err.Error())
	}
	if err := h.c.hpack.Close(); err != nil {
		return nil, fatal(compression, err.Error())
	}
	if h.size > h.c.s.o.MaxHeaderList {
		return &request{err: enhanceYourCalm}, nil
	}
	r := h.parse()
	if remember && len(h.known) < maxRemembered {
		h.known[string(block)] = r
	}
	return r, nil
}

// parse checks the fields as RFC 9113 §8 and gRPC's protocol ask.
func (h *headers) parse() *request {
	r := &request{md: make(metadata.MD, len(h.fields))}
	var verb, scheme, authority, contentType string
	regular, hasPath := false, false
	for i := range h.fields {
		f := &h.fields[i]
		if !f.IsPseudo() {
			regular = true
			if !r.field(f, &contentType) {
				return &request{err: protocolError}
			}
			continue
		}
		var of *string
		switch f.Name {
		case ":method":
			of = &verb
		case ":scheme":
			of = &scheme
		case ":path":
			of, hasPath = &r.path, true
		case ":authority":
			of = &authority
		}
		if regular || of == nil || *of != "" {
			return &request{err: protocolError}
		}
		*of = f.Value
	}
	if verb == "" || scheme == "" || !hasPath || r.path == "" {
		return &request{err: protocolError}
	}
	if authority == "" && len(r.md["host"]) == 1 {
		authority = r.md["host"][0]
	}
	delete(r.md, "host")
	r.md[":authority"] = []string{authority}
	r.md["content-type"] = []string{contentType}
	r.complete(h.c, verb, contentType)
	return r
}

// field takes a field that isn't a pseudo-header, and reports whether it is permitted.
func (r *request) field(f *hpack.HeaderField, contentType *string) bool {
	switch f.Name {
	case "":
		return false
	case "content-type":
		*contentType = f.Value
		return true
	case "te":
		return f.Value == "trailers"
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return false
	case "grpc-encoding":
		if f.Value != encoding.Identity {
			r.encoding = f.Value
		}
		return true
	case "grpc-timeout":
		var err error
		if r.timeout, err = parseTimeout(f.Value); err != nil {
			r.malformed("malformed grpc-timeout: %v", err)
		}
		return true
	}
	if strings.ContainsFunc(f.Name, func(c rune) bool { return c >= 'A' && c <= 'Z' }) {
		return false
	}
	if reserved(f.Name) {
		return true
	}
	v := f.Value
	if strings.HasSuffix(f.Name, "-bin") {
		b, err := decodeBinary(v)
		if err != nil {
			r.malformed("malformed binary metadata %q in header %q: %v", v, f.Name, err)
		}
		v = string(b)
	}
	r.md[f.Name] = append(r.md[f.Name], v)
	return true
}

// malformed refuses a request with the first of its fields that can't be decoded.
func (r *request) malformed(format string, args ...any) {
	if r.refusal == nil {
		r.httpStatus, r.refusal = http.StatusBadRequest, status.Newf(codes.Internal, format, args...)
	}
}

// complete finds the method, or the reason why the request is refused.
func (r *request) complete(c *conn, verb, contentType string) {
	base := metadata.NewIncomingContext(c.base, r.md)
	r.base = base
	subtype, ok := strings.CutPrefix(strings.ToLower(contentType), "application/grpc")
	if ok && subtype != "" && subtype[0] == '+' {
		r.subtype = subtype
	}
	switch {
	case !ok || subtype != "" && subtype[0] != '+' && subtype[0] != ';':
		r.httpStatus = http.StatusUnsupportedMediaType
		r.refusal = status.Newf(codes.InvalidArgument, "invalid gRPC request content-type %q", contentType)
		return
	case r.refusal != nil:
		return
	case verb != http.MethodPost:
		r.httpStatus = http.StatusMethodNotAllowed
		r.refusal = status.Newf(codes.Internal, "Received a HEADERS frame with :method %q which should be POST", verb)
		return
	}
	if r.method = c.s.methods[r.path]; r.method == nil {
		r.refusal = c.s.unknown(r.path)
		return
	}
	if r.encoding != "" {
		if r.compressor = encoding.GetCompressor(r.encoding); r.compressor == nil {
			r.refusal = status.Newf(codes.Unimplemented, "grpc: Decompressor is not installed for grpc-encoding %q", r.encoding)
		}
	}
}

// arrived asks the tap handle, if there is one.
func (r *request) arrived(o *Options) (context.Context, *status.Status) {
	if o.Arrived == nil {
		return r.base, nil
	}
	ctx, err := o.Arrived(r.base, &tap.Info{FullMethodName: r.path, Header: r.md})
	if err == nil {
		return ctx, nil
	}
	s, ok := status.FromError(err)
	if !ok {
		s = status.New(codes.PermissionDenied, err.Error())
	}
	return nil, s
}

func (s *Server) unknown(path string) *status.Status {
	last := strings.LastIndexByte(path, '/')
	if last <= 0 || path[0] != '/' {
		return status.Newf(codes.Unimplemented, "malformed method name: %q", path)
	}
	service, name := path[1:last], path[last+1:]
	if _, known := s.services[service]; known {
		return status.Newf(codes.Unimplemented, "unknown method %v for service %v", name, service)
	}
	return status.Newf(codes.Unimplemented, "unknown service %v", service)
}

// reserved are headers that are the transport's, not metadata.
func reserved(name string) bool {
	switch name {
	case "grpc-message-type", "grpc-message", "grpc-status", "grpc-status-details-bin":
		return true
	}
	return false
}

// decodeBinary decodes base64, padded or not.
func decodeBinary(v string) ([]byte, error) {
	if len(v)%4 == 0 {
		return base64.StdEncoding.DecodeString(v)
	}
	return base64.RawStdEncoding.DecodeString(v)
}

// parseTimeout reads a grpc-timeout: at most eight digits and a unit.
func parseTimeout(v string) (time.Duration, error) {
	units := map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}
	if len(v) < 2 || len(v) > 9 {
		return 0, fmt.Errorf("transport: timeout string is not 1 to 8 digits and a unit: %q", v)
	}
	unit, n := units[v[len(v)-1]], v[:len(v)-1]
	if unit == 0 {
		return 0, fmt.Errorf("transport: timeout unit is not recognized: %q", v)
	}
	d, err := strconv.ParseUint(n, 10, 32)
	if err != nil {
		return 0, err
	}
	const most = 1<<63 - 1
	if time.Duration(d) > most/unit {
		return most, nil
	}
	return max(time.Duration(d)*unit, 1), nil
}
