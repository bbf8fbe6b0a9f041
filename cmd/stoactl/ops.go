package main

import (
	"io"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// opFlags are the flags of a request that stands alone or in a txn.
type opFlags interface {
	declare(*pflag.FlagSet)
	// op builds the request; in is the source of a missing value, nil if there
	// is none.
	op(args []string, in io.Reader) (clientv3.Op, error)
}

type putFlags struct {
	lease                          string
	prev, ignoreValue, ignoreLease bool
}

func (f *putFlags) declare(s *pflag.FlagSet) {
	s.StringVar(&f.lease, "lease", "0", "lease ID (in hexadecimal) to attach to the key")
	s.BoolVar(&f.prev, "prev-kv", false, "return the previous key-value pair before modification")
	s.BoolVar(&f.ignoreValue, "ignore-value", false, "updates the key using its current value")
	s.BoolVar(&f.ignoreLease, "ignore-lease", false, "updates the key using its current lease")
}

func (f *putFlags) op(args []string, in io.Reader) (clientv3.Op, error) {
	none := clientv3.Op{}
	if len(args) == 0 || len(args) > 2 {
		return none, badArgs("put needs a key, and a value or input from stdin")
	}
	if f.ignoreValue && len(args) > 1 {
		return none, badArgs("put needs only a key when --ignore-value is set")
	}
	var value string
	switch {
	case len(args) > 1:
		value = args[1]
	case f.ignoreValue:
	case in == nil:
		return none, badArgs("put needs a key and a value")
	default:
		b, err := io.ReadAll(in)
		if err != nil {
			return none, badArgs("reading the value from stdin: %w", err)
		}
		if value = string(b); value == "" {
			return none, badArgs("put needs a key, and a value or input from stdin, which is empty; an empty value is put with: put <key> \"\"")
		}
	}
	lease, err := strconv.ParseInt(f.lease, 16, 64)
	if err != nil {
		return none, badArgs("bad lease ID (%w), expecting ID in Hex", err)
	}
	var opts []clientv3.OpOption
	if lease != 0 {
		opts = append(opts, clientv3.WithLease(clientv3.LeaseID(lease)))
	}
	opts = appendIf(opts, f.prev, clientv3.WithPrevKV)
	opts = appendIf(opts, f.ignoreValue, clientv3.WithIgnoreValue)
	opts = appendIf(opts, f.ignoreLease, clientv3.WithIgnoreLease)
	return clientv3.OpPut(args[0], value, opts...), nil
}

func appendIf(opts []clientv3.OpOption, on bool, o func() clientv3.OpOption) []clientv3.OpOption {
	if on {
		return append(opts, o())
	}
	return opts
}

// span is the part of get and del that says which keys.
type span struct{ prefix, fromKey bool }

func (s *span) keys(args []string) (key string, opts []clientv3.OpOption, err error) {
	switch {
	case len(args) == 0 || len(args) > 2:
		return "", nil, badArgs("one argument as key and an optional argument as range_end are needed")
	case s.prefix && s.fromKey:
		return "", nil, badArgs("--prefix and --from-key cannot be set at the same time, choose one")
	case len(args) == 2 && (s.prefix || s.fromKey):
		return "", nil, badArgs("too many arguments, only accept one argument when --prefix or --from-key is set")
	case len(args) == 2:
		return args[0], []clientv3.OpOption{clientv3.WithRange(args[1])}, nil
	}
	key = args[0]
	if key == "" && (s.prefix || s.fromKey) {
		return "\x00", []clientv3.OpOption{clientv3.WithFromKey()}, nil
	}
	opts = appendIf(opts, s.prefix, clientv3.WithPrefix)
	opts = appendIf(opts, s.fromKey, clientv3.WithFromKey)
	return key, opts, nil
}

type delFlags struct {
	span
	prev, sure bool
}

func (f *delFlags) declare(s *pflag.FlagSet) {
	s.BoolVar(&f.prefix, "prefix", false, "delete keys with matching prefix")
	s.BoolVar(&f.fromKey, "from-key", false, "delete keys that are greater than or equal to the given key using byte compare")
	s.BoolVar(&f.prev, "prev-kv", false, "return deleted key-value pairs")
	s.BoolVar(&f.sure, "range", false, "delete a range of keys without a warning before")
}

func (f *delFlags) op(args []string, _ io.Reader) (clientv3.Op, error) {
	key, opts, err := f.keys(args)
	if err != nil {
		return clientv3.Op{}, err
	}
	return clientv3.OpDelete(key, appendIf(opts, f.prev, clientv3.WithPrevKV)...), nil
}

type getFlags struct {
	span
	consistency, order, by               string
	limit, rev                           int64
	keysOnly, countOnly, valueOnly       bool
	minCreate, maxCreate, minMod, maxMod int64
	stream                               bool
}

func (f *getFlags) declare(s *pflag.FlagSet) {
	s.StringVar(&f.consistency, "consistency", "l", "Linearizable(l) or Serializable(s)")
	s.StringVar(&f.order, "order", "", "Order of results; ASCEND or DESCEND (ASCEND by default)")
	s.StringVar(&f.by, "sort-by", "", "Sort target; CREATE, KEY, MODIFY, VALUE, or VERSION")
	s.Int64Var(&f.limit, "limit", 0, "Maximum number of results")
	s.BoolVar(&f.prefix, "prefix", false, "Get keys with matching prefix")
	s.BoolVar(&f.fromKey, "from-key", false, "Get keys that are greater than or equal to the given key using byte compare")
	s.Int64Var(&f.rev, "rev", 0, "Specify the kv revision")
	s.BoolVar(&f.keysOnly, "keys-only", false, "Get only the keys")
	s.BoolVar(&f.countOnly, "count-only", false, "Get only the count")
	s.BoolVar(&f.valueOnly, "print-value-only", false, `Only write values when using the "simple" output format`)
	s.Int64Var(&f.minCreate, "min-create-rev", 0, "Minimum create revision")
	s.Int64Var(&f.maxCreate, "max-create-rev", 0, "Maximum create revision")
	s.Int64Var(&f.minMod, "min-mod-rev", 0, "Minimum modification revision")
	s.Int64Var(&f.maxMod, "max-mod-rev", 0, "Maximum modification revision")
	s.BoolVar(&f.stream, "stream", false, "Use the RangeStream RPC")
}

func (f *getFlags) op(args []string, _ io.Reader) (clientv3.Op, error) {
	key, opts, err := f.options(args)
	if err != nil {
		return clientv3.Op{}, err
	}
	return clientv3.OpGet(key, opts...), nil
}

func (f *getFlags) options(args []string) (string, []clientv3.OpOption, error) {
	key, opts, err := f.keys(args)
	if err != nil {
		return "", nil, err
	}
	if f.keysOnly && f.countOnly {
		return "", nil, badArgs("--keys-only and --count-only cannot be set at the same time, choose one")
	}
	switch f.consistency {
	case "l":
	case "s":
		opts = append(opts, clientv3.WithSerializable())
	default:
		return "", nil, badFeature("unknown consistency flag %q: there are l and s", f.consistency)
	}
	sort, err := f.sorting()
	if err == nil {
		err = f.checkRevisions()
	}
	if err != nil {
		return "", nil, err
	}
	opts = append(opts, sort, clientv3.WithLimit(f.limit))
	for _, o := range []struct {
		rev int64
		opt func(int64) clientv3.OpOption
	}{
		{f.rev, clientv3.WithRev}, {f.minCreate, clientv3.WithMinCreateRev}, {f.maxCreate, clientv3.WithMaxCreateRev},
		{f.minMod, clientv3.WithMinModRev}, {f.maxMod, clientv3.WithMaxModRev},
	} {
		if o.rev > 0 {
			opts = append(opts, o.opt(o.rev))
		}
	}
	opts = appendIf(opts, f.keysOnly, clientv3.WithKeysOnly)
	opts = appendIf(opts, f.countOnly, clientv3.WithCountOnly)
	return key, opts, nil
}

func (f *getFlags) checkRevisions() error {
	switch {
	case f.maxCreate > 0 && f.minCreate > f.maxCreate:
		return badFeature("--min-create-rev(=%d) > --max-create-rev(=%d)", f.minCreate, f.maxCreate)
	case f.maxMod > 0 && f.minMod > f.maxMod:
		return badFeature("--min-mod-rev(=%d) > --max-mod-rev(=%d)", f.minMod, f.maxMod)
	}
	return nil
}

func (f *getFlags) sorting() (clientv3.OpOption, error) {
	orders := map[string]clientv3.SortOrder{"": clientv3.SortNone, "ASCEND": clientv3.SortAscend, "DESCEND": clientv3.SortDescend}
	targets := map[string]clientv3.SortTarget{
		"": clientv3.SortByKey, "KEY": clientv3.SortByKey, "CREATE": clientv3.SortByCreateRevision,
		"MODIFY": clientv3.SortByModRevision, "VALUE": clientv3.SortByValue, "VERSION": clientv3.SortByVersion,
	}
	order, ok := orders[strings.ToUpper(f.order)]
	if !ok {
		return nil, badFeature("bad sort order %v: there are ASCEND and DESCEND", f.order)
	}
	target, ok := targets[strings.ToUpper(f.by)]
	if !ok {
		return nil, badFeature("bad sort target %v: there are CREATE, KEY, MODIFY, VALUE and VERSION", f.by)
	}
	return clientv3.WithSort(target, order), nil
}
