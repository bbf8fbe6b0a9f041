// Package overzookeeper builds the recipes in the traditional way over ZooKeeper, with
// the znodes of the paper's figures. Where Apache Curator is kinder to the server than
// the figure, it does as Curator does: elements and candidates are sequential znodes, so
// that their order is in their names, and a candidate watches its predecessor alone.
package overzookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
	"github.com/stoa-kv/stoa/test/recipes/socket"
)

// sessionTimeout outlives any pause of a busy machine; ZooKeeper grants up to 20 ticks.
const sessionTimeout = 30 * time.Second

// Kit is one participant: a session with one server.
type Kit struct {
	conn  *zk.Conn
	tally recipe.Tally
}

// Dial opens a session and waits until it stands.
func Dial(ctx context.Context, endpoint string, tap *socket.Tap) (*Kit, error) {
	address := strings.TrimPrefix(endpoint, "zookeeper://")
	conn, events, err := zk.Connect([]string{address}, sessionTimeout,
		zk.WithDialer(tap.DialZooKeeper), zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	timeout := time.After(sessionTimeout)
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return &Kit{conn: conn}, nil
			}
		case <-timeout:
			conn.Close()
			return nil, fmt.Errorf("connecting to %s: no session after %v", address, sessionTimeout)
		case <-ctx.Done():
			conn.Close()
			return nil, fmt.Errorf("connecting to %s: %w", address, ctx.Err())
		}
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func (k *Kit) Tally() *recipe.Tally { return &k.tally }

func (k *Kit) Close() error {
	k.conn.Close()
	return nil
}

// Reset leaves the recipe's znodes as they are before its first use.
func (k *Kit) Reset(_ context.Context, name string, _ int) error {
	var err error
	switch name {
	case "counter":
		// Set, not made anew: versions go on, and so a server that lags behind can
		// only cause a retry.
		if err = k.make(counterNode, "0"); err == nil {
			_, err = k.conn.Set(counterNode, []byte("0"), -1)
		}
	case "queue":
		err = errors.Join(k.empty(queueNode), k.make(queueNode, ""))
	case "barrier":
		err = errors.Join(k.remove(readyNode), k.empty(barrierNode), k.make(barrierNode, ""))
	case "election":
		err = k.make(leaderNode, "")
	}
	if err != nil {
		return fmt.Errorf("resetting the %s: %w", name, err)
	}
	return nil
}

func (k *Kit) make(node, data string) error {
	_, err := k.conn.Create(node, []byte(data), 0, zk.WorldACL(zk.PermAll))
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

func (k *Kit) remove(node string) error {
	err := k.conn.Delete(node, -1)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// empty deletes the children, all in one transaction.
func (k *Kit) empty(node string) error {
	children, _, err := k.conn.Children(node)
	if errors.Is(err, zk.ErrNoNode) || err == nil && len(children) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	var deletes []any
	for _, c := range children {
		deletes = append(deletes, &zk.DeleteRequest{Path: path.Join(node, c), Version: -1})
	}
	_, err = k.conn.Multi(deletes...)
	return err
}

// oldestFirst lists the sequential children of a znode in the order of their creation.
func (k *Kit) oldestFirst(node string) ([]string, error) {
	k.tally.Calls.Add(1)
	children, _, err := k.conn.Children(node)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(children, func(a, b string) int { return strings.Compare(sequence(a), sequence(b)) })
	return children, nil
}

// sequence is the number of ten digits that ZooKeeper appends.
func sequence(name string) string { return name[max(0, len(name)-10):] }

// waitFor returns when the znode's next event has come.
func waitFor(ctx context.Context, events <-chan zk.Event) error {
	select {
	case e := <-events:
		return e.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}
