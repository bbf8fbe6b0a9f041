package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	peerpb "github.com/stoa-kv/stoa/api/stoa/peer/v1"
)

// Door is the service of the peer port. It answers introductions from the beginning, and
// takes links and snapshots once there is a Transport.
type Door struct {
	peerpb.UnimplementedPeerServer
	answer func(*peerpb.Introduction) (*peerpb.Introduction, error)
	turn   chan struct{} // held during an answer, which may wait for the disk
	inside atomic.Pointer[Transport]
}

// NewDoor adds the service to a server of the peer port, which must have been made with
// ServerOptions. answer answers introductions; its errors say that it can't yet.
func NewDoor(s *grpc.Server, answer func(*peerpb.Introduction) (*peerpb.Introduction, error)) *Door {
	d := &Door{answer: answer, turn: make(chan struct{}, 1)}
	peerpb.RegisterPeerServer(s, d)
	return d
}

// Open lets links in, and starts the transport's own.
func (d *Door) Open(t *Transport) {
	d.inside.Store(t)
	t.Start()
}

var errClosedDoor = status.Error(codes.Unavailable, "the server is starting")

// Link implements peerpb.PeerServer.
func (d *Door) Link(stream grpc.BidiStreamingServer[peerpb.Batch, peerpb.Pulse]) error {
	if t := d.inside.Load(); t != nil {
		return t.Link(stream)
	}
	return errClosedDoor
}

// Install implements peerpb.PeerServer.
func (d *Door) Install(stream grpc.ClientStreamingServer[peerpb.Chunk, peerpb.Installed]) error {
	if t := d.inside.Load(); t != nil {
		return t.Install(stream)
	}
	return errClosedDoor
}

// Introduce implements peerpb.PeerServer.
func (d *Door) Introduce(ctx context.Context, q *peerpb.Introduction) (*peerpb.Introduction, error) {
	ended, err := alone(ctx, d.turn)
	if err != nil {
		return nil, err
	}
	defer ended()
	a, err := d.answer(q)
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return a, nil
}

// introductionLimit is how long one attempt to introduce oneself may take.
const introductionLimit = 3 * time.Second

// Introduce asks the server at the first of the URLs that answers. tls is for https and
// unixs URLs.
func Introduce(ctx context.Context, urls []string, tls *tls.Config, q *peerpb.Introduction) (*peerpb.Introduction, error) {
	addrs, err := parseURLs(urls, tls)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, a := range addrs {
		answer, err := a.introduce(ctx, q)
		if err == nil {
			return answer, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", a.url, err))
	}
	return nil, errors.Join(errs...)
}

func (a addr) introduce(ctx context.Context, q *peerpb.Introduction) (*peerpb.Introduction, error) {
	ctx, cancel := context.WithTimeout(ctx, introductionLimit)
	defer cancel()
	conn, err := a.dial(introductionLimit)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answer, err := peerpb.NewPeerClient(conn).Introduce(ctx, q)
	switch text := status.Convert(err).Message(); {
	case status.Code(err) == codes.Unimplemented:
		return nil, fmt.Errorf("%s: this is no peer URL of a member", text)
	case err != nil:
		return nil, errors.New(text)
	}
	return answer, nil
}
