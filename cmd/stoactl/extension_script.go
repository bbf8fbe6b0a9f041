package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/rehearsal"
)

// scripted is one request of a script: the arguments of stoactl, and the client
// that sends it. The lines of a txn follow its first one, indented. Its
// expected results follow after "=".
type scripted struct {
	text   string
	from   string // the file
	line   int    // from 1
	caller rehearsal.Caller
	req    proto.Message
	wants  []expectation
}

// readScript reads requests. Lines that begin with # are left out, and so are empty
// ones, but inside a txn, where they separate its parts.
func readScript(text, from string, as rehearsal.Caller) ([]*scripted, error) {
	var all []*scripted
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, " \t\r")
		indented := strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "="):
			e, err := readExpectation(i+1, line[1:])
			if err == nil && len(all) == 0 {
				err = fmt.Errorf("line %d: there is no request above it", i+1)
			}
			if err != nil {
				return nil, err
			}
			last := all[len(all)-1]
			last.wants = append(last.wants, e)
		case (line == "" || indented) && len(all) > 0:
			all[len(all)-1].text += "\n" + line
		case indented:
			return nil, fmt.Errorf("line %d is indented, but there is no request before it", i+1)
		case line != "":
			all = append(all, &scripted{text: line, from: from, line: i + 1})
		}
	}
	for _, s := range all {
		s.text = strings.TrimRight(s.text, "\n")
		if err := s.parse(as); err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", s.line, strings.SplitN(s.text, "\n", 2)[0], err)
		}
	}
	return all, nil
}

// parse reads the flags before the command, and the command.
func (s *scripted) parse(as rehearsal.Caller) error {
	first, rest, more := strings.Cut(s.text, "\n")
	args, err := words(first)
	if err != nil {
		return err
	}
	lease := ""
	s.caller = as
	set := pflag.NewFlagSet("request", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.SetInterspersed(false)
	set.StringVar(&s.caller.Client, "client", as.Client, "")
	set.StringVar(&lease, "lease", "", "")
	if err := set.Parse(args); err != nil {
		return err
	}
	if lease != "" {
		if s.caller.Lease, err = leaseNamed(lease); err != nil {
			return err
		}
	}
	if args = set.Args(); len(args) == 0 {
		return errors.New("there is no request")
	}
	if args[0] == "txn" {
		s.req, err = txnOf(rest)
		return err
	}
	if more {
		return errors.New("only a txn goes on in further lines")
	}
	s.req, err = requestOf(args)
	return err
}

func requestOf(args []string) (proto.Message, error) {
	switch args[0] {
	case "watch":
		return watchOf(args[1:])
	case "grant", "expire":
		if len(args) != 2 {
			return nil, fmt.Errorf("%s needs a lease ID", args[0])
		}
		id, err := leaseNamed(args[1])
		if err != nil {
			return nil, err
		}
		if args[0] == "grant" {
			return &pb.LeaseGrantRequest{ID: id, TTL: grantTTL}, nil
		}
		return &pb.LeaseRevokeRequest{ID: id}, nil
	case "put", "get", "del":
		op, err := parseWords(args)
		if err != nil {
			return nil, err
		}
		return messageOf(op), nil
	}
	return nil, errors.New("want get, put, del, txn, watch, grant or expire")
}

// grantTTL is that of leases in a rehearsal, where nothing takes any time.
const grantTTL = 60

func watchOf(args []string) (proto.Message, error) {
	var prefix bool
	set := pflag.NewFlagSet("watch", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.BoolVar(&prefix, "prefix", false, "")
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	args = set.Args()
	switch {
	case len(args) == 0 || len(args) > 2 || len(args) == 2 && prefix:
		return nil, errors.New("watch needs a key, and a range_end or --prefix")
	case len(args) == 2:
		return &pb.WatchCreateRequest{Key: []byte(args[0]), RangeEnd: []byte(args[1])}, nil
	case prefix:
		return &pb.WatchCreateRequest{Key: []byte(args[0]), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(args[0]))}, nil
	}
	return &pb.WatchCreateRequest{Key: []byte(args[0])}, nil
}

// txnOf reads the lines of a txn as the command txn reads them from stdin.
func txnOf(lines string) (proto.Message, error) {
	const ends = "\n\n\n\n" // of the last line and of parts that aren't there
	a := &app{in: bufio.NewReader(strings.NewReader(lines + ends)), out: io.Discard}
	cmps, success, failure, err := a.readTxn(false)
	if err != nil {
		return nil, err
	}
	return messageOf(clientv3.OpTxn(cmps, success, failure)), nil
}

// messageOf is the request that etcd's client makes of an operation: it is
// captured by a server that doesn't execute it.
func messageOf(op clientv3.Op) proto.Message {
	s := &onlooker{}
	_, _ = clientv3.NewKVFromKVClient(s, nil).Do(context.Background(), op)
	return s.seen
}

type onlooker struct {
	pb.KVClient
	seen proto.Message
}

var errSeen = errors.New("seen")

func (s *onlooker) Range(_ context.Context, r *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	s.seen = r
	return nil, errSeen
}

func (s *onlooker) Put(_ context.Context, r *pb.PutRequest, _ ...grpc.CallOption) (*pb.PutResponse, error) {
	s.seen = r
	return nil, errSeen
}

func (s *onlooker) DeleteRange(_ context.Context, r *pb.DeleteRangeRequest, _ ...grpc.CallOption) (*pb.DeleteRangeResponse, error) {
	s.seen = r
	return nil, errSeen
}

func (s *onlooker) Txn(_ context.Context, r *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	s.seen = r
	return nil, errSeen
}

// readState reads keys, one to a line: the key, the value, and perhaps --lease ID.
func readState(text string) ([]*pb.PutRequest, error) {
	var puts []*pb.PutRequest
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		args, err := words(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		op, err := parseWords(slices.Concat([]string{"put"}, args))
		if err != nil {
			return nil, fmt.Errorf("line %d: want KEY VALUE [--lease ID]: %w", i+1, err)
		}
		puts = append(puts, messageOf(op).(*pb.PutRequest))
	}
	return puts, nil
}
