package recipes

import (
	"context"
	"fmt"
)

// Tree is keys whose names are paths, such as a file system's.
type Tree struct {
	kv   handle
	root string
}

// NewTree returns the tree below a root, which doesn't end in a slash ("/fs").
func NewTree(kv KV, root string) *Tree {
	return &Tree{kv: handle{kv: kv}, root: rootOf("rename", root)}
}

// Rename moves a key, with everything below it, to another name, all at one revision, and
// returns how many keys that were. Paths are relative to the root: "home/ann". A single
// key replaces another one; nothing replaces a tree, and none moves below itself.
func (t *Tree) Rename(ctx context.Context, old, new string) (moved int64, err error) {
	n, err := callNumber(ctx, t.kv, t.root+"-rename/"+old, new)
	if err != nil {
		return 0, fmt.Errorf("recipes: renaming %s to %s in %s: %w", old, new, t.root, err)
	}
	return n, nil
}
