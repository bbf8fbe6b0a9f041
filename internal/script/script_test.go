package script_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/stoa-kv/stoa/internal/script"
)

var roomy = script.Limits{Steps: 1 << 20, Bytes: 1 << 24, Depth: 100}

func TestFirst(t *testing.T) {
	p, err := script.Compile([]byte(`
local base = 10
local function fib(n) if n < 2 then return n end return fib(n-1) + fib(n-2) end
return { read = function(r)
  local t = {}
  for i = 1, 10 do t[i] = fib(i) end
  local s = ""
  for k, v in pairs(t) do s = s .. k .. "=" .. v .. ";" end
  local u = 0
  local function bump() u = u + base end
  bump() bump()
  table.sort(t, function(a, b) return a > b end)
  return s .. u .. ":" .. table.concat(t, ",") .. ("%05d|%-4s|"):format(-42, r)
end }`), nil, script.Bounds{})
	require.NoError(t, err)
	m, u, err := p.Load(roomy)
	require.NoError(t, err)
	t.Log(u)
	tab, _ := m.Export().AsTable()
	v, u, err := m.Call(tab.Field("read"), []script.Value{script.String("x")}, roomy, nil)
	require.NoError(t, err)
	s, _ := v.AsString()
	t.Log(u, s)
}
