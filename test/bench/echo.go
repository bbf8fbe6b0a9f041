package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
	"github.com/stoa-kv/stoa/api/stoa/v1/sessionwire"
	"github.com/stoa-kv/stoa/test/process"
)

// echoEnv makes this program the empty server: a bare gRPC server whose only call is a
// session's stream, and whose handler does nothing: it answers each message with one
// of as many replies as there were requests, all the same bytes. What it reaches is
// what gRPC and the machine allow.
const echoEnv = "STOA_BENCH_EMPTY"

// serveEmpty serves until it is killed. It takes etcd's flags, of which it needs one.
func serveEmpty(args []string) error {
	address := ""
	for _, a := range args {
		if url, ok := strings.CutPrefix(a, "--listen-client-urls="); ok {
			address = strings.TrimPrefix(url, "http://")
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("the empty server: %w", err)
	}
	srv := newEmptyServer()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		srv.Stop()
	}()
	fmt.Println(process.ReadyLine)
	return srv.Serve(l)
}

func newEmptyServer() *grpc.Server {
	return grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{encoding.GetCodecV2(proto.Name)}), grpc.UnknownServiceHandler(empty))
}

// rawCodec passes messages on as they are.
type rawCodec struct{ encoding.CodecV2 }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// empty answers a stream. The first message says, in the session's revision, how large
// a reply's body shall be.
func empty(_ any, stream grpc.ServerStream) error {
	var in []byte
	if err := stream.RecvMsg(&in); err != nil {
		return err
	}
	var first sessionwire.ClientBatch
	if err := first.Decode(in); err != nil || first.Open == nil {
		return errors.New("the first message must open a session")
	}
	reply := sessionwire.AppendReplyHead(nil, &sessionwire.Reply{Seq: 1 << 20, Revision: 1 << 20}, int(first.Open.Revision))
	reply = append(reply, make([]byte, first.Open.Revision)...)
	opened, err := (&sessionwire.ServerBatch{Opened: &stoapb.Opened{Session: 1}}).AppendTo(nil)
	for err == nil {
		if err = stream.SendMsg(opened); err != nil {
			break
		}
		if err = stream.RecvMsg(&in); err == nil {
			opened = replies(in, reply)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// replies is a reply for every request in a message.
func replies(in, reply []byte) []byte {
	n := 0
	for len(in) > 0 {
		field, kind, size := protowire.ConsumeTag(in)
		if size < 0 {
			break
		}
		value := protowire.ConsumeFieldValue(field, kind, in[size:])
		if value < 0 {
			break
		}
		if field == 3 {
			n++
		}
		in = in[size+value:]
	}
	out := make([]byte, 0, n*len(reply))
	for range n {
		out = append(out, reply...)
	}
	return out
}
