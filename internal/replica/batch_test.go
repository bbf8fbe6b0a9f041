package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/placement"
)

// A token is logged in an entry of partition 0 alone, whatever sessions write beside it.
func TestATokenIsInAnEntryOfItsOwn(t *testing.T) {
	g := leading(t, 1).replicas[0].groups[0]
	token := &Write{Command: command.Command{Kind: command.Auth}, Parts: placement.Of(0)}
	write := &Write{Command: command.Command{Kind: command.InSession}, Parts: bothParts, Session: true}
	g.accept(write, write, token, token, write)
	for _, batch := range [][]*Write{{write, write}, {token}, {token}, {write}} {
		require.Equal(t, batch, g.nextBatch())
	}
}
