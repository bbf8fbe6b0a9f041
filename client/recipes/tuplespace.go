package recipes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Tuple is a list of fields; as a template, of fields that must be equal and of Any.
type Tuple []string

// Any is the field of a template that matches everything.
const Any = "\x00any"

// TupleSpace holds tuples, with the operations of DepSpace (Table 2 of the EZK paper). Of
// several tuples that match a template, an operation takes the oldest with the lowest
// first field.
type TupleSpace struct {
	client handle
	root   string
}

// ErrNoMatch: no tuple matches the template.
var ErrNoMatch = errors.New("no tuple matches")

// NewTupleSpace returns the tuple space at a root.
func NewTupleSpace(c Client, root string) *TupleSpace {
	return &TupleSpace{client: handle{c, c}, root: rootOf("tuplespace", root)}
}

// Out adds a tuple, for as long as the lease lasts; 0 is for ever.
func (s *TupleSpace) Out(ctx context.Context, t Tuple, lease clientv3.LeaseID) error {
	text, err := t.tuple()
	if err != nil {
		return s.failed("out", t, err)
	}
	answer, err := call(ctx, s.client, s.root+"out", text, clientv3.WithLease(lease))
	if err == nil && answer == nil {
		err = ErrUnhandled
	}
	return s.failed("out", t, err)
}

// Rdp reads a tuple that matches, or fails with ErrNoMatch.
func (s *TupleSpace) Rdp(ctx context.Context, template Tuple) (Tuple, error) {
	resp, err := s.get(ctx, "rdp/", template)
	if err == nil && len(resp.Kvs) == 0 {
		err = ErrNoMatch
	}
	if err != nil {
		return nil, s.failed("rdp", template, err)
	}
	return parseTuple(resp.Kvs[0]), nil
}

// RdAll reads all tuples that match.
func (s *TupleSpace) RdAll(ctx context.Context, template Tuple) ([]Tuple, error) {
	resp, err := s.get(ctx, "rdall/", template)
	if err != nil {
		return nil, s.failed("rdAll", template, err)
	}
	all := make([]Tuple, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		all[i] = parseTuple(kv)
	}
	return all, nil
}

func (s *TupleSpace) get(ctx context.Context, verb string, template Tuple) (*clientv3.GetResponse, error) {
	text, err := template.text()
	if err != nil {
		return nil, err
	}
	return s.client.Get(ctx, s.root+verb+text)
}

// Rd reads a tuple that matches, and waits for one if there is none.
func (s *TupleSpace) Rd(ctx context.Context, template Tuple) (Tuple, error) {
	text, err := template.text()
	if err != nil {
		return nil, s.failed("rd", template, err)
	}
	kv, err := await(ctx, s.client, s.root+"rd/"+text)
	if err != nil {
		return nil, s.failed("rd", template, err)
	}
	return parseTuple(kv), nil
}

// Inp removes a tuple that matches and returns it, or fails with ErrNoMatch.
func (s *TupleSpace) Inp(ctx context.Context, template Tuple) (Tuple, error) {
	answer, err := s.change(ctx, "inp/", template, "")
	if err == nil && answer == nil {
		err = ErrNoMatch
	}
	if err != nil {
		return nil, s.failed("inp", template, err)
	}
	return parseTuple(answer), nil
}

// Cas adds a tuple unless one matches the template, and reports whether it has.
func (s *TupleSpace) Cas(ctx context.Context, template, t Tuple) (bool, error) {
	text, err := t.tuple()
	if err != nil {
		return false, s.failed("cas", template, err)
	}
	answer, err := s.change(ctx, "cas/", template, text)
	if err == nil && answer == nil {
		err = ErrUnhandled
	}
	if err != nil {
		return false, s.failed("cas", template, err)
	}
	return string(answer.Value) == "true", nil
}

// Replace puts a tuple in the place of one that matches, and returns that one, or fails
// with ErrNoMatch.
func (s *TupleSpace) Replace(ctx context.Context, template, t Tuple) (Tuple, error) {
	text, err := t.tuple()
	if err != nil {
		return nil, s.failed("replace", template, err)
	}
	answer, err := s.change(ctx, "replace/", template, text)
	if err == nil && answer == nil {
		err = ErrNoMatch
	}
	if err != nil {
		return nil, s.failed("replace", template, err)
	}
	return parseTuple(answer), nil
}

func (s *TupleSpace) change(ctx context.Context, verb string, template Tuple, value string) (*mvccpb.KeyValue, error) {
	text, err := template.text()
	if err != nil {
		return nil, err
	}
	return call(ctx, s.client, s.root+verb+text, value)
}

func (s *TupleSpace) failed(doing string, t Tuple, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("recipes: %s of %q in %s: %w", doing, []string(t), s.root, err)
}

// In the text of a tuple fields are separated by commas, and "*" is Any.
// Characters that could be confused with these, or with a part of the path, are
// escaped as in URLs.
var (
	escape   = strings.NewReplacer("%", "%25", ",", "%2C", "/", "%2F", "*", "%2A")
	unescape = strings.NewReplacer("%2C", ",", "%2F", "/", "%2A", "*", "%25", "%")
)

func (t Tuple) text() (string, error) {
	if len(t) == 0 {
		return "", errors.New("a tuple without fields")
	}
	fields := make([]string, len(t))
	for i, f := range t {
		if fields[i] = escape.Replace(f); f == Any {
			fields[i] = "*"
		}
	}
	return strings.Join(fields, ","), nil
}

// tuple is the text of a tuple that isn't a template.
func (t Tuple) tuple() (string, error) {
	for _, f := range t {
		if f == Any {
			return "", errors.New("only a template can have Any")
		}
	}
	return t.text()
}

func parseTuple(kv *mvccpb.KeyValue) Tuple {
	fields := strings.Split(string(kv.Value), ",")
	for i, f := range fields {
		fields[i] = unescape.Replace(f)
	}
	return fields
}
