package h2

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/net/http/httpguts"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// request is what a header block says, but for the deadline. Calls with the same fields share it.
type request struct {
	path       string
	method     *method // nil: there is none
	base       context.Context
	encoding   string // grpc-encoding, if it isn't identity
	compressor encoding.Compressor
	subtype    string // of application/grpc
	md         metadata.MD
	httpStatus int            // to be refused with, or 0
	refusal    *status.Status // or this, or nil
	err        errorCode      // of a malformed request
	size       int            // of its fields
}

const (
	maxRemembered    = 64 // requests of a connection
	rememberedSize   = 64 << 10
	maxContinuations = 16 // frames of a block

	// leastSize is from how many bytes of fields on each call has to find room for them: an index of one byte stands
	// for a field of up to 4 KiB. So has one that shares them: what is remembered is forgotten while calls are open.
	leastSize = 4 << 10
	// mostKeys is for how many keys metadata has room from the beginning.
	mostKeys = 32
)

// pseudoFields are those of requests, RFC 9113 §8.3.1.
var pseudoFields = [...]string{":method", ":scheme", ":path", ":authority"}

// headers decodes the header blocks of a connection.
type headers struct {
	c       *conn
	table   table
	emit    func(entry) // add
	fields  []entry     // of the block
	size    uint32      // of them
	most    uint32      // of the blocks since fields was made
	timeout string      // grpc-timeout's

	// Requests by the ids of their fields: most calls of a client have the same, but for the
	// deadline. They are forgotten when the ids are given anew.
	known  map[string]*request
	weight uint32 // of their fields
	ids    []byte // of the block
	epoch  int

	// Of a block in several frames.
	block  []byte
	frames int
	waited int // frames, when the connection was last looked at
	first  frame
}

func (h *headers) init(c *conn) {
	h.c, h.emit = c, h.add
	h.table.limit = tableSize
	h.table.longest = int(c.s.o.MaxHeaderList) + 2*maxFrame // a longer one ends the connection
}

func (h *headers) add(e entry) {
	h.size += uint32(e.size())
	if h.size > h.c.s.o.MaxHeaderList {
		return
	}
	h.fields = append(h.fields, e)
	h.ids = append(h.ids, e.id)
	if told := h.c.s.o.Field; told != nil {
		told(e.name, e.value)
	}
	if e.id == timeoutID {
		h.timeout = e.value
	}
}

// decode returns what a block says, and the call's timeout, 0 if it has none. The error ends the
// connection: its tables are out of step.
func (h *headers) decode(block []byte) (*request, time.Duration, error) {
	h.fields, h.ids, h.size, h.timeout = h.fields[:0], h.ids[:0], 0, ""
	epoch := h.table.epoch
	if err := h.table.fields(block, h.emit); err != nil {
		return nil, 0, fatal(compression, err.Error())
	}
	h.most = max(h.most, h.size)
	if h.size > h.c.s.o.MaxHeaderList {
		return &request{err: enhanceYourCalm}, 0, nil
	}
	if h.epoch != h.table.epoch {
		h.epoch, h.known, h.weight = h.table.epoch, nil, 0
	}
	var timeout time.Duration
	if slices.Contains(h.ids, timeoutID) {
		var err error
		if timeout, err = parseTimeout(h.timeout); err != nil {
			return h.parse(err), 0, nil
		}
	}
	if r := h.known[string(h.ids)]; r != nil {
		return r, timeout, nil
	}
	r := h.parse(nil)
	r.size = int(h.size)
	if epoch == h.epoch && len(h.known) < maxRemembered && h.weight+h.size <= rememberedSize && !slices.Contains(h.ids, 0) {
		if h.known == nil {
			h.known = map[string]*request{}
		}
		h.known[string(h.ids)] = r
		h.weight += h.size
	}
	return r, timeout, nil
}

// parse checks the fields as RFC 9113 §8 and gRPC's protocol ask. It looks at no timeout: badTimeout
// is the error of one that can't be read.
func (h *headers) parse(badTimeout error) *request {
	r := &request{md: make(metadata.MD, min(len(h.fields), mostKeys))}
	if badTimeout != nil {
		r.malformed("malformed grpc-timeout: %v", badTimeout)
	}
	var pseudo [len(pseudoFields)]string
	var seen [len(pseudoFields)]bool
	contentType, regular := "", false
	for i := range h.fields {
		f := &h.fields[i]
		if !httpguts.ValidHeaderFieldValue(f.value) {
			return &request{err: protocolError}
		}
		if !strings.HasPrefix(f.name, ":") {
			regular = true
			if !r.field(f, &contentType) {
				return &request{err: protocolError}
			}
			continue
		}
		at := slices.Index(pseudoFields[:], f.name)
		if regular || at < 0 || seen[at] {
			return &request{err: protocolError}
		}
		pseudo[at], seen[at] = f.value, true
	}
	verb, scheme, authority := pseudo[0], pseudo[1], pseudo[3]
	if r.path = pseudo[2]; verb == "" || scheme == "" || r.path == "" {
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
func (r *request) field(f *entry, contentType *string) bool {
	switch f.name {
	case "content-type":
		*contentType = f.value
		return true
	case "te":
		return f.value == "trailers"
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		return false
	case "grpc-encoding":
		if f.value != encoding.Identity {
			r.encoding = f.value
		}
		return true
	case "grpc-timeout":
		return true
	}
	if !httpguts.ValidHeaderFieldName(f.name) || strings.ContainsFunc(f.name, unicode.IsUpper) {
		return false
	}
	if reserved(f.name) {
		return true
	}
	v := f.value
	if strings.HasSuffix(f.name, "-bin") {
		b, err := decodeBinary(v)
		if err != nil {
			r.malformed("malformed binary metadata %q in header %q: %v", v, f.name, err)
		}
		v = string(b)
	}
	r.md[f.name] = append(r.md[f.name], v)
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
		if r.method, r.refusal = c.s.unknown(r.path); r.refusal != nil {
			return
		}
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

// unknown is the handling of a method that isn't registered: Options.Unknown, or a refusal.
func (s *Server) unknown(path string) (*method, *status.Status) {
	last := strings.LastIndexByte(path, '/')
	if last <= 0 || path[0] != '/' {
		return nil, status.Newf(codes.Unimplemented, "malformed method name: %q", path)
	}
	service, name := path[1:last], path[last+1:]
	if s.o.Unknown != nil {
		info := grpc.StreamServerInfo{FullMethod: path, IsClientStream: true, IsServerStream: true}
		return &method{stream: s.o.Unknown, info: info, service: service}, nil
	}
	if _, known := s.services[service]; known {
		return nil, status.Newf(codes.Unimplemented, "unknown method %v for service %v", name, service)
	}
	return nil, status.Newf(codes.Unimplemented, "unknown service %v", service)
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
