package h2_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/stoa-kv/stoa/internal/h2"
)

// bursts are what makes a connection hold much.
var bursts = map[string]func(w *wire, f *http2.Framer){
	"large frames": func(w *wire, f *http2.Framer) {
		for range 10 {
			_ = f.WriteRawFrame(0x42, 0, 0, make([]byte, 16<<10))
		}
	},
	"a frame that doesn't go on": func(w *wire, f *http2.Framer) {
		_ = f.WriteRawFrame(0x42, 0, 0, make([]byte, 4<<10))
		_ = f.WriteRawFrame(0x42, 0, 0, make([]byte, 16<<10))
		_ = f.WriteRawFrame(0x42, 0, 0, make([]byte, 16<<10))
	},
	"many fields": func(w *wire, f *http2.Framer) {
		w.fields(f, 1, 1500, func(i int) (string, string) { return "a", "b" })
	},
	"large fields": func(w *wire, f *http2.Framer) {
		w.fields(f, 1, 3, func(i int) (string, string) { return "a", strings.Repeat("b", 18<<10) })
	},
	"requests to remember": func(w *wire, f *http2.Framer) {
		for i := range 64 {
			w.buf.Reset()
			for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", fmt.Sprint("/a/", i)}, {"content-type", "application/grpc"}} {
				_ = w.hpk.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
			}
			for j := range 22 {
				_ = w.hpk.WriteField(hpack.HeaderField{Name: fmt.Sprint("n", j)})
			}
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: w.buf.Bytes(), EndHeaders: true, EndStream: true})
		}
	},
	"fields to number": func(w *wire, f *http2.Framer) {
		w.fields(f, 1, 9, func(i int) (string, string) { return "a", strings.Repeat("b", 1900+i) })
	},
	"many streams": func(w *wire, f *http2.Framer) {
		block, known := w.block("UnaryCall"), w.block("UnaryCall")
		for i := range uint32(2000) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: block, EndHeaders: true})
			block = known
		}
		for i := range uint32(2000) {
			_ = f.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		}
	},
}

// fields are the headers of a call, and more fields, in several frames if need be.
func (w *wire) fields(f *http2.Framer, id uint32, n int, field func(i int) (name, value string)) {
	block := w.block("Nothing")
	w.buf.Reset()
	for i := range n {
		name, value := field(i)
		require.NoError(w.t, w.hpk.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true}))
	}
	block = append(block, w.buf.Bytes()...)
	first := block[:min(len(block), 16<<10)]
	block = block[len(first):]
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndHeaders: len(block) == 0, EndStream: true})
	for len(block) > 0 {
		more := block[:min(len(block), 16<<10)]
		block = block[len(more):]
		_ = f.WriteContinuation(id, len(block) == 0, more)
	}
}

// Behind a burst a connection is small again, though its client goes on to send a little.
func TestSlimBehindABurst(t *testing.T) {
	const conns = 50
	for name, burst := range bursts {
		t.Run(name, func(t *testing.T) {
			most := 6 << 10
			if name == "requests to remember" {
				most = 18 << 10 // the table of headers is full
			}
			if !stacksAsReleased {
				most += 8 << 10
			}
			r := newRig(t, h2.Options{PingInterval: 1, PingsWithoutStreams: true}.SlimEvery(200*time.Millisecond))
			var all []*wire
			var read []*drainer
			ping := func() {
				for i, w := range all {
					require.NoError(t, w.WritePing(false, [8]byte{}))
					<-read[i].pinged
				}
			}
			for range conns {
				w := dialWire(t, r.addr)
				all, read = append(all, w), append(read, w.drain())
			}
			ping()
			before := memory()
			for i, w := range all {
				b := frames(func(f *http2.Framer) { burst(w, f) })
				w.hpk, w.buf = nil, bytes.Buffer{} // what is measured is the server's
				rest := 0
				if strings.HasPrefix(name, "a frame") {
					rest = 16 << 10 // but for its header
				}
				require.True(t, w.write(b[:len(b)-rest], 1))
				if rest > 0 {
					defer func() { // it is taken when it comes
						require.True(t, w.write(make([]byte, rest), 1))
						require.NoError(t, w.WritePing(false, [8]byte{}))
						<-read[i].pinged
					}()
				}
			}
			if !strings.HasPrefix(name, "a frame") {
				ping()
			}
			burst := (int(memory()) - int(before)) / conns
			left := burst
			for deadline := time.Now().Add(time.Minute); left >= most && time.Now().Before(deadline); {
				time.Sleep(50 * time.Millisecond)
				if !strings.HasPrefix(name, "a frame") {
					ping()
				}
				left = (int(memory()) - int(before)) / conns
			}
			t.Logf("each holds %d B behind the burst, and %d B later", burst, left)
			require.Less(t, left, most, "each holds much")
		})
	}
}

// Calls of all kinds are what they are when their connections are looked at all the time, over TLS, too.
func TestSlimBesideCalls(t *testing.T) {
	o := h2.Options{}.SlimEvery(time.Nanosecond)
	cert := httptest.NewTLSServer(nil)
	t.Cleanup(cert.Close)
	secure := o
	secure.Creds = credentials.NewTLS(&tls.Config{Certificates: cert.TLS.Certificates, NextProtos: []string{"h2"}})
	roots := x509.NewCertPool()
	roots.AddCert(cert.Certificate())
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(t, newRig(t, o)) })
		t.Run(name+"/TLS", func(t *testing.T) {
			run(t, newRig(t, secure, grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(roots, "example.com"))))
		})
	}
}

// A header block that has begun and doesn't go on ends its connection: nothing of it can be given back.
func TestHeadersThatDoNotGoOn(t *testing.T) {
	r := newRig(t, h2.Options{}.SlimEvery(300*time.Millisecond))
	begin := func() *wire {
		w := dialWire(t, r.addr)
		w.begin(1, "EmptyCall", "a", strings.Repeat("b", 10<<10)) // 8 KB, packed
		require.NoError(t, w.WriteData(1, true, make([]byte, 5)))
		w.answered(1)
		require.NoError(t, w.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: w.block("EmptyCall", "a", strings.Repeat("b", 10<<10))}))
		return w
	}
	w := begin()
	require.NoError(t, w.WriteContinuation(3, true, nil))
	require.NoError(t, w.WriteData(3, true, make([]byte, 5)))
	w.answered(3)

	code, text, _ := begin().ended()
	require.Equal(t, http2.ErrCodeEnhanceYourCalm, code)
	require.Equal(t, "a header block doesn't go on", text)
}
