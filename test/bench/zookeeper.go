package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// zkPipe is one session of ZooKeeper's, which is one connection, with as many requests
// under way as it is told to. It writes ZooKeeper's frames by hand as wire and link
// write gRPC's, so that the load costs as little here as there: requests are encoded
// beforehand but for their numbers, and what is sent at one time is one write.
type zkPipe struct {
	conn    net.Conn
	in      *bufio.Reader
	out     *bufio.Writer
	source  func() []byte // the next request, without its number
	atLeast int
	xid     int32
	seen    int32
	known   int32 // an error that is none: node exists
}

// What a frame of ZooKeeper's says.
const (
	zkCreate  = 1
	zkGetData = 4
	zkSetData = 5
	zkClose   = -11

	zkNodeExists = -110
	zkPing       = -2 // the number of answers to pings
	zkEvent      = -1 // and of what watches bring

	zkReplyHead = 16
)

func openZooKeeper(address string, source func() []byte, atLeast int) (*zkPipe, error) {
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	p := &zkPipe{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), out: bufio.NewWriterSize(conn, 64<<10), source: source, atLeast: atLeast}
	b := make([]byte, 4+4+8+4+8, 64)
	binary.BigEndian.PutUint32(b[16:], 30_000) // ms that the session outlives its connection
	b = append(zkInt(b, 16), make([]byte, 16)...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	_, err = conn.Write(b)
	if err == nil {
		_, err = p.frame()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("opening a session on %s: %w", address, err)
	}
	return p, nil
}

func (p *zkPipe) sessions() int                       { return 1 }
func (p *zkPipe) flush() error                        { return p.out.Flush() }
func (p *zkPipe) pending() bool                       { return p.in.Buffered() >= 4 }
func (p *zkPipe) await(until time.Time) (bool, error) { return await(p.conn, p.in, 4, until) }

func (p *zkPipe) ask(_, n int) error {
	for range n {
		if err := p.send(p.source()); err != nil {
			return err
		}
	}
	return nil
}

// send gives a request its number. The first four bytes of a request are its kind.
func (p *zkPipe) send(request []byte) error {
	p.xid++
	var head [8]byte
	binary.BigEndian.PutUint32(head[:], uint32(4+len(request)))
	binary.BigEndian.PutUint32(head[4:], uint32(p.xid))
	_, err := p.out.Write(head[:])
	if err == nil {
		_, err = p.out.Write(request)
	}
	return err
}

// frame reads one frame; it is good until the next.
func (p *zkPipe) frame() ([]byte, error) {
	head, err := p.in.Peek(4)
	if err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head))
	if 4+n > p.in.Size() {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	b, err := p.in.Peek(4 + n)
	if err != nil {
		return nil, err
	}
	_, err = p.in.Discard(4 + n)
	return b[4:], err
}

// receive takes in all frames that are there.
func (p *zkPipe) receive(answered func(session, n int)) error {
	n := 0
	for first := true; first || p.pending(); first = false {
		b, err := p.frame()
		if err != nil {
			return err
		}
		isReply, err := p.reply(b)
		if err != nil {
			return err
		}
		if isReply {
			n++
		}
	}
	if n > 0 {
		answered(0, n)
	}
	return nil
}

func (p *zkPipe) reply(b []byte) (bool, error) {
	if len(b) < zkReplyHead {
		return false, io.ErrUnexpectedEOF
	}
	xid, code := int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[12:]))
	switch {
	case xid == zkPing || xid == zkEvent:
		return false, nil
	case xid != p.seen+1:
		return false, fmt.Errorf("request %d was answered behind %d", xid, p.seen)
	case code != 0 && code != p.known:
		return false, fmt.Errorf("request %d was answered with error %d", xid, code)
	case len(b)-zkReplyHead < p.atLeast:
		return false, fmt.Errorf("an answer of %d bytes, where the value alone has %d", len(b)-zkReplyHead, p.atLeast)
	}
	p.seen = xid
	return true, nil
}

func (p *zkPipe) close() error {
	defer p.conn.Close()
	p.atLeast = 0
	if err := errors.Join(p.send(zkInt(nil, zkClose)), p.flush()); err != nil {
		return fmt.Errorf("closing a session: %w", err)
	}
	for closed := 0; closed == 0; {
		if err := p.receive(func(_, n int) { closed += n }); err != nil {
			return fmt.Errorf("closing a session: %w", err)
		}
	}
	return nil
}

func zkInt(b []byte, n int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }

func zkBytes[T string | []byte](b []byte, v T) []byte { return append(zkInt(b, int32(len(v))), v...) }

// zkRequest encodes an operation on a key, without its number.
func zkRequest(op int32, key string, value []byte) []byte {
	b := zkBytes(zkInt(nil, op), key)
	switch op {
	case zkGetData:
		b = append(b, 0) // no watch
	case zkSetData:
		b = zkInt(zkBytes(b, value), -1)
	case zkCreate:
		b = zkInt(zkInt(zkBytes(b, value), 1), 31) // one entry in its ACL: all rights
		b = zkBytes(zkBytes(b, "world"), "anyone")
		b = zkInt(b, 0)
	}
	return b
}

// fillZooKeeper creates all keys and the directories above them, which must be there first.
func fillZooKeeper(address string, keys []string, value []byte) error {
	var requests [][]byte
	made := map[string]bool{}
	for _, k := range keys {
		for end := 1; ; end++ {
			slash := strings.IndexByte(k[end:], '/')
			if slash < 0 {
				break
			}
			end += slash
			if dir := k[:end]; !made[dir] {
				made[dir] = true
				requests = append(requests, zkRequest(zkCreate, dir, nil))
			}
		}
		requests = append(requests, zkRequest(zkCreate, k, value))
	}
	next := 0
	var p *zkPipe
	var err error
	for range 50 { // it says that it serves a little before it does
		if p, err = openZooKeeper(address, func() []byte { next++; return requests[next-1] }, 0); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	p.known = zkNodeExists
	for done := 0; done < len(requests); {
		if err := errors.Join(p.ask(0, min(200, len(requests)-next)), p.flush()); err != nil {
			return err
		}
		for done < next {
			if err := p.receive(func(_, n int) { done += n }); err != nil {
				return fmt.Errorf("filling ZooKeeper: %w", err)
			}
		}
	}
	return p.close()
}
