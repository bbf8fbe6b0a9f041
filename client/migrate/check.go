package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stoa-kv/stoa/client"
	"github.com/stoa-kv/stoa/client/mirror"
	"github.com/stoa-kv/stoa/client/mirror/cluster"
)

// extensions are the keys by which extensions of stoa are registered.
const extensions = "/em/"

// check refuses clusters that can't be migrated, before anything is written.
func (m *migration) check(ctx context.Context) error {
	for {
		err := m.checkOnce(ctx)
		if err == nil || !cluster.Retry(m.Observer.Retrying)(ctx, err) {
			return err
		}
	}
}

func (m *migration) checkOnce(ctx context.Context) error {
	from, err := m.source.ID(ctx)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	to, err := cluster.NewSource(m.To, cluster.All).ID(ctx)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	if from == to {
		return fmt.Errorf("%w, %x", ErrSame, from)
	}
	if has, err := m.sourceHas(ctx, MarkKey); err != nil || has {
		if has {
			err = fmt.Errorf("%w: it has the key %s, as the target of a migration that isn't finished: finish that one, or delete the key", ErrUnfit, MarkKey)
		}
		return err
	}
	return m.checkExtensions(ctx)
}

func (m *migration) sourceHas(ctx context.Context, key string, opts ...clientv3.OpOption) (bool, error) {
	r, err := m.From.Get(ctx, key, append(opts, clientv3.WithLimit(1), clientv3.WithKeysOnly())...)
	if err != nil {
		return false, fmt.Errorf("source: %w", err)
	}
	return len(r.Kvs) > 0, nil
}

// checkExtensions refuses extensions for a target of stoa's: they would act on the keys that
// are copied, a second time.
func (m *migration) checkExtensions(ctx context.Context) error {
	has, err := m.sourceHas(ctx, extensions, clientv3.WithPrefix())
	if err != nil || !has {
		return err
	}
	stoa, err := m.toStoa(ctx)
	if err != nil || !stoa {
		return err
	}
	return fmt.Errorf("%w: it has keys under %s, which register extensions in the target, and these would act on the keys that are copied: "+
		"move it by a snapshot (stoactl snapshot save, snapshot restore)", ErrUnfit, extensions)
}

// toStoa reports whether the target is of stoa's.
func (m *migration) toStoa(ctx context.Context) (bool, error) {
	switch _, err := client.Of(m.To).Partitions(ctx); status.Code(err) {
	case codes.OK, codes.PermissionDenied: // not every user may see them
		return true, nil
	case codes.Unimplemented:
		return false, nil
	default:
		return false, fmt.Errorf("target: %w", err)
	}
}

// guarded is the target, without keys that would register an extension there: the source may get one at any time.
type guarded struct {
	mirror.Target
	m *migration
}

// errExtended: the source has had an extension since it was checked.
var errExtended = errors.New("the source has got an extension")

// Commit implements mirror.Target.
func (g guarded) Commit(ctx context.Context, t mirror.Txn) (mirror.Result, error) {
	if slices.ContainsFunc(t.Ops, registers) {
		stoa, err := g.m.toStoa(ctx)
		if err == nil && stoa {
			err = errExtended
		}
		if err != nil {
			return mirror.Result{}, err
		}
	}
	return g.Target.Commit(ctx, t)
}

func registers(op mirror.Op) bool { return !op.Delete && bytes.HasPrefix(op.Key, []byte(extensions)) }

// extended refuses the source for an extension that it has got, or begins a copy, if it has it no longer.
func (m *migration) extended(ctx context.Context) error {
	err := m.again(ctx, func() error { return m.checkExtensions(ctx) })
	if err == nil {
		m.e.Repeat()
	}
	return err
}
