package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// dense is a source that takes some milliseconds to compile.
func dense(i int) string {
	return fmt.Sprintf("local x = %d ", i) + strings.Repeat("x=function()end ", 1500) +
		fmt.Sprintf(`return { scope = { "/d%d/" }, operations = { { op = "put", prefix = "/d%[1]d/" } }, put = function() end }`, i)
}

// Apply finds sources compiled on every server, whichever has the registration from its
// client, by a call or by a session.
func TestApplyFindsSourcesCompiled(t *testing.T) {
	each(t, func(t *testing.T, c *cluster) {
		for i := range c.nodes {
			c.put(i, fmt.Sprintf("/em/call%d", i), dense(i))
			s := newSessionClient(c, i)
			s.open(0)
			s.send(askPut("/before", "1"), askPut(fmt.Sprintf("/em/session%d", i), dense(10+i)), askPut("/after", "2"))
			s.waitForReplies(0)
			for _, r := range s.replies {
				require.NoError(t, r.err)
			}
		}
		late, missing := int64(0), int64(0)
		for i := range c.nodes { // they have applied everything
			require.EqualValues(t, len(c.nodes), c.get(i, "/after", "").Kvs[0].Version)
			require.Len(t, c.nodes[i].Extensions(), 2*len(c.nodes))
			late += c.nodes[i].current().machine.LateCompilations()
			missing += c.nodes[i].compilations.missing.Load()
		}
		// On a busy machine one may take longer than the others wait for it.
		require.LessOrEqual(t, late, missing)
	})
}
