package node

import (
	"bytes"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/extension"
	"github.com/stoa-kv/stoa/internal/store"
)

// managed logs the extensions that the changes of one revision register, replace, remove,
// disable or enable: a client's changes, and those by which the cluster disables one that
// keeps failing. What is observed of the calls of an earlier source ends. It is called while
// stores are locked.
func (n *Node) managed(rev int64, changes []store.Change) {
	removed := map[string]bool{}
	for i := range changes {
		c := &changes[i]
		role, name, _ := extension.Parse(c.Kv.Key())
		if role == extension.Source {
			n.sourceChanged(name, c)
			removed[name] = c.Delete
		}
		if role == extension.Source || role == extension.Status && !removed[name] {
			if write := extensionLine(role, c, zap.String("extension", name), zap.Int64("revision", rev)); write != nil {
				n.lines.add(write)
			}
		}
	}
}

// sourceChanged drops the log of an extension that is removed, and ends the profile of one
// whose source is another: it counts by lines.
func (n *Node) sourceChanged(name string, c *store.Change) {
	if c.Delete {
		n.callLog.Forget(name)
	}
	if c.Delete || !bytes.Equal(c.Prev.Value(), c.Kv.Value()) {
		n.profiles.End(name)
	}
}

// manages tells whether the key is one by which extensions are managed. Every change of
// every key asks.
func manages(key []byte) bool {
	const root = extension.Root
	return len(key) > len(root) && string(key[:len(root)]) == root
}

// extensionLine is nil for a change that needs no line.
func extensionLine(role extension.Role, c *store.Change, fields ...zap.Field) line {
	if role == extension.Source {
		switch {
		case c.Delete:
			return infoLine("extension removed", fields)
		case !c.Prev.Exists():
			return infoLine("extension registered", fields)
		case !bytes.Equal(c.Prev.Value(), c.Kv.Value()):
			return infoLine("extension replaced", fields)
		}
		return nil
	}
	var now extension.Standing
	if !c.Delete {
		now = extension.ParseStanding(c.Kv.Value())
	}
	was := c.Prev.Exists() && extension.ParseStanding(c.Prev.Value()).Disabled
	switch {
	case now.Disabled && !was:
		return func(lg *zap.Logger) {
			lg.Warn("extension disabled", append(fields, zap.String("reason", now.Reason))...)
		}
	case !now.Disabled && was:
		return infoLine("extension enabled", fields)
	}
	return nil
}

func infoLine(text string, fields []zap.Field) line {
	return func(lg *zap.Logger) { lg.Info(text, fields...) }
}
