package overzookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/stoa-kv/stoa/test/recipes/recipe"
)

const leaderNode = "/leader"

type election struct {
	*Kit
	id   string
	mine string // the candidate's znode, while there is one
}

// Election needs no preparation: the connection is the session.
func (k *Kit) Election(_ context.Context, id string) (recipe.Election, error) {
	return &election{Kit: k, id: id}, nil
}

// Campaign is figure 11 (left), with the wait for one's predecessor alone that keeps
// the herd away (ZooKeeper's own recipe, and Curator's).
func (e *election) Campaign(ctx context.Context) error {
	e.tally.Calls.Add(1)
	var err error
	e.mine, err = e.conn.Create(leaderNode+"/"+e.id+"-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return fmt.Errorf("registering as a candidate: %w", err)
	}
	for {
		candidates, err := e.oldestFirst(leaderNode)
		if err != nil {
			return fmt.Errorf("listing the candidates: %w", err)
		}
		place := slices.Index(candidates, path.Base(e.mine))
		if place < 0 {
			return errors.New("the candidate's own znode is gone: the session has expired")
		}
		if place == 0 {
			return nil
		}
		e.tally.Calls.Add(1)
		there, _, events, err := e.conn.ExistsW(leaderNode + "/" + candidates[place-1])
		if err != nil {
			return fmt.Errorf("watching the predecessor: %w", err)
		}
		if !there {
			e.tally.Retries.Add(1)
			continue
		}
		if err := waitFor(ctx, events); err != nil {
			return err
		}
	}
}

func (e *election) Resign(context.Context) error {
	e.tally.Calls.Add(1)
	if err := e.conn.Delete(e.mine, -1); err != nil {
		return fmt.Errorf("resigning: %w", err)
	}
	return nil
}
