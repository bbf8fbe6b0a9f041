package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (a *app) txnCommand() *cobra.Command {
	var prompt bool
	cmd := &cobra.Command{
		Use: "txn [options]", Short: "Txn processes all the requests in one transaction",
		Long: `Reads a transaction from stdin: comparisons, an empty line, requests for success,
an empty line, requests for failure, an empty line.

  mod("key1") > "0"

  put key1 "overwrote-key1"

  put key1 "created-key1"
  put key2 "some extra key"
`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			cmps, success, failure, err := a.readTxn(prompt)
			if err != nil {
				return err
			}
			return a.withStore(func(ctx context.Context, c store) error {
				r, err := c.Txn(ctx).If(cmps...).Then(success...).Else(failure...).Commit()
				if err != nil {
					return err
				}
				return a.show(txnView(r))
			})
		},
	}
	cmd.Flags().BoolVarP(&prompt, "interactive", "i", false, "Input transaction in interactive mode")
	return cmd
}

func (a *app) readTxn(prompt bool) (cmps []clientv3.Cmp, success, failure []clientv3.Op, err error) {
	section := func(title string, each func(line string) error) {
		if err != nil {
			return
		}
		if prompt {
			fmt.Fprintln(a.out, title)
		}
		err = a.paragraph(title, each)
	}
	ops := func(to *[]clientv3.Op) func(string) error {
		return func(line string) error {
			op, err := parseOp(line)
			*to = append(*to, op)
			return err
		}
	}
	section("compares:", func(line string) error {
		c, err := parseCompare(line)
		cmps = append(cmps, c)
		return err
	})
	section("success requests (get, put, del):", ops(&success))
	section("failure requests (get, put, del):", ops(&failure))
	return cmps, success, failure, err
}

// paragraph reads lines up to an empty one. A transaction that ends before it
// may be truncated, so it is refused.
func (a *app) paragraph(title string, each func(string) error) error {
	for {
		line, err := a.in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return invalidInput("the input ends within the %s an empty line ends each of the three parts of a transaction", title)
		} else if err != nil {
			return invalidInput("reading the transaction: %w", err)
		}
		if line = strings.TrimSpace(line); line == "" {
			return nil
		}
		if err := each(line); err != nil {
			return err
		}
	}
}

// parseCompare reads target("key") op "value".
func parseCompare(line string) (clientv3.Cmp, error) {
	var key, op, val string
	target, rest, ok := strings.Cut(line, "(")
	if n, err := fmt.Sscanf(rest, "%q) %s %q", &key, &op, &val); !ok || n != 3 || err != nil {
		return clientv3.Cmp{}, invalidInput(`malformed comparison: %s (want target("key") op "value")`, line)
	}
	if op != "=" && op != "!=" && op != ">" && op != "<" {
		return clientv3.Cmp{}, invalidInput("malformed comparison: %s (unknown operator %s)", line, op)
	}
	var left clientv3.Cmp
	switch strings.TrimSpace(target) {
	case "val", "value":
		return clientv3.Compare(clientv3.Value(key), op, val), nil
	case "ver", "version":
		left = clientv3.Version(key)
	case "c", "create":
		left = clientv3.CreateRevision(key)
	case "m", "mod":
		left = clientv3.ModRevision(key)
	case "lease":
		id, err := strconv.ParseInt(val, 16, 64)
		if err != nil {
			return clientv3.Cmp{}, invalidInput("malformed comparison: %s (bad lease ID in hex: %w)", line, err)
		}
		return clientv3.Compare(clientv3.LeaseValue(key), op, id), nil
	default:
		return clientv3.Cmp{}, invalidInput("malformed comparison: %s (unknown target %s)", line, target)
	}
	v, err := strconv.ParseInt(val, 10, 64)
	if err != nil {
		return clientv3.Cmp{}, invalidInput("malformed comparison: %s: %w", line, err)
	}
	return clientv3.Compare(left, op, v), nil
}

// parseOp reads a put, get or del with the flags of the command of that name.
func parseOp(line string) (clientv3.Op, error) {
	args, err := words(line)
	if err != nil || len(args) < 2 {
		return clientv3.Op{}, invalidInput("invalid txn request: %s", line)
	}
	op, err := parseWords(args)
	var known *exit
	switch {
	case errors.As(err, &known):
		return op, fmt.Errorf("invalid txn request: %s: %w", line, err)
	case err != nil:
		return op, invalidInput("invalid txn request: %s: %w", line, err)
	}
	return op, nil
}

// parseWords is parseOp for a line that has been split.
func parseWords(args []string) (clientv3.Op, error) {
	var f opFlags
	switch args[0] {
	case "put":
		f = &putFlags{}
	case "get":
		f = &getFlags{}
	case "del":
		f = &delFlags{}
	default:
		return clientv3.Op{}, errors.New("want put, get or del")
	}
	set := pflag.NewFlagSet(args[0], pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	f.declare(set)
	if err := set.Parse(args[1:]); err != nil {
		return clientv3.Op{}, err
	}
	return f.op(set.Args(), nil)
}

// words splits a line at spaces; "quoted" words follow Go's escapes, 'quoted'
// ones have none.
func words(line string) ([]string, error) {
	var out []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		var word string
		switch line[0] {
		case '"':
			quoted, err := strconv.QuotedPrefix(line)
			if err != nil {
				return nil, err
			}
			if word, err = strconv.Unquote(quoted); err != nil {
				return nil, err
			}
			line = line[len(quoted):]
		case '\'':
			var ok bool
			if word, line, ok = strings.Cut(line[1:], "'"); !ok {
				return nil, errors.New("a quote is not closed")
			}
		default:
			i := strings.IndexAny(line, " \t")
			if i < 0 {
				i = len(line)
			}
			word, line = line[:i], line[i:]
		}
		out = append(out, word)
	}
	return out, nil
}

func txnView(r *clientv3.TxnResponse) view {
	parts := make([]view, len(r.Responses))
	for i, op := range r.Responses {
		parts[i] = opView(op)
	}
	return view{
		json: txnJSON((*pb.TxnResponse)(r)), protobuf: (*pb.TxnResponse)(r),
		simple: func(p *printer) {
			if r.Succeeded {
				p.line("SUCCESS")
			} else {
				p.line("FAILURE")
			}
			for _, v := range parts {
				p.line()
				v.simple(p)
			}
		},
		fields: func(p *printer) {
			p.header(r.Header)
			p.line(`"Succeeded" :`, r.Succeeded)
			for _, v := range parts {
				v.fields(p)
			}
		},
	}
}

func opView(op *pb.ResponseOp) view {
	switch r := op.Response.(type) {
	case *pb.ResponseOp_ResponsePut:
		return putView((*clientv3.PutResponse)(r.ResponsePut))
	case *pb.ResponseOp_ResponseRange:
		return getView((*clientv3.GetResponse)(r.ResponseRange), false)
	case *pb.ResponseOp_ResponseDeleteRange:
		return delView((*clientv3.DeleteResponse)(r.ResponseDeleteRange))
	case *pb.ResponseOp_ResponseTxn:
		return txnView((*clientv3.TxnResponse)(r.ResponseTxn))
	}
	unknown := func(p *printer) { p.printf("unexpected response %v\n", op) }
	return view{json: op, simple: unknown, fields: unknown}
}

// txnJSON gives the answers inside a txn the names that etcdctl gives them.
func txnJSON(r *pb.TxnResponse) any {
	type response struct {
		Range       *pb.RangeResponse       `json:"response_range,omitempty"`
		Put         *pb.PutResponse         `json:"response_put,omitempty"`
		DeleteRange *pb.DeleteRangeResponse `json:"response_delete_range,omitempty"`
		Txn         any                     `json:"response_txn,omitempty"`
	}
	type wrapped struct{ Response response }
	out := struct {
		Header    *pb.ResponseHeader `json:"header,omitempty"`
		Succeeded bool               `json:"succeeded,omitempty"`
		Responses []wrapped          `json:"responses,omitempty"`
	}{Header: r.Header, Succeeded: r.Succeeded}
	for _, op := range r.Responses {
		w := wrapped{response{Range: op.GetResponseRange(), Put: op.GetResponsePut(), DeleteRange: op.GetResponseDeleteRange()}}
		if t := op.GetResponseTxn(); t != nil {
			w.Response.Txn = txnJSON(t)
		}
		out.Responses = append(out.Responses, w)
	}
	return out
}
