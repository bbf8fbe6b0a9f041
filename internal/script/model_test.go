package script_test

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/script"
)

// TestIntegersAgainstModel evaluates drawn expressions over integers with big
// numbers, and wants the same result, or an error where there is none.
func TestIntegersAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		variables := map[string]int64{}
		var names []string
		for i := range 3 {
			name := string(rune('a' + i))
			variables[name] = drawInt(t)
			names = append(names, name)
		}
		source, want := drawExpression(t, variables, names, 0)
		var locals strings.Builder
		for _, name := range names {
			fmt.Fprintf(&locals, "local %s = %d\n", name, variables[name])
		}
		o := compileAndRun("return { run = function()\n"+locals.String()+"return "+source+"\nend }", script.Bounds{}, roomy)
		if want == nil {
			require.Contains(t, []string{"integer overflow", "division by zero"}, o.err.Reason, source)
			return
		}
		require.Empty(t, o.err.Reason, source)
		require.Equal(t, want.String(), o.value, source)
	})
}

func drawInt(t *rapid.T) int64 {
	edges := []int64{0, 1, -1, 2, -2, 3, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1, math.MinInt64 + 1, math.MaxInt32, math.MinInt32, 3037000499, 3037000500}
	return rapid.OneOf(rapid.SampledFrom(edges), rapid.Int64Range(-20, 20), rapid.Int64()).Draw(t, "n")
}

// drawExpression gives an expression and its value; nil is an error.
func drawExpression(t *rapid.T, variables map[string]int64, names []string, depth int) (string, *big.Int) {
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	switch {
	case depth == 6 || kind < 2:
		n := drawInt(t)
		return fmt.Sprintf("(%d)", n), big.NewInt(n)
	case kind < 5:
		name := rapid.SampledFrom(names).Draw(t, "name")
		return name, big.NewInt(variables[name])
	case kind == 5:
		source, v := drawExpression(t, variables, names, depth+1)
		if v == nil {
			return "-(" + source + ")", nil
		}
		return "-(" + source + ")", exact(new(big.Int).Neg(v))
	}
	op := rapid.SampledFrom([]string{"+", "-", "*", "/", "%"}).Draw(t, "op")
	left, x := drawExpression(t, variables, names, depth+1)
	right, y := drawExpression(t, variables, names, depth+1)
	source := "(" + left + " " + op + " " + right + ")"
	if x == nil || y == nil {
		return source, nil
	}
	return source, exact(model(op, x, y))
}

func model(op string, x, y *big.Int) *big.Int {
	r := new(big.Int)
	switch op {
	case "+":
		return r.Add(x, y)
	case "-":
		return r.Sub(x, y)
	case "*":
		return r.Mul(x, y)
	}
	if y.Sign() == 0 {
		return nil
	}
	quotient, rest := new(big.Int).QuoRem(x, y, new(big.Int))
	if rest.Sign() != 0 && rest.Sign() != y.Sign() {
		quotient.Sub(quotient, big.NewInt(1))
		rest.Add(rest, y)
	}
	if op == "/" {
		return quotient
	}
	return rest
}

func exact(v *big.Int) *big.Int {
	if v == nil || !v.IsInt64() {
		return nil
	}
	return v
}

// TestTablesAgainstModel does the same to a table and to a plain list of keys in
// the order in which they should come.
func TestTablesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var source strings.Builder
		source.WriteString("return { run = function()\nlocal t = {}\n")
		m := &orderedModel{values: map[string]int{}}
		n := rapid.IntRange(0, 60).Draw(t, "n")
		for i := range n {
			key := rapid.SampledFrom(keys).Draw(t, "key")
			if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
				fmt.Fprintf(&source, "t[%s] = nil\n", key)
				m.delete(key)
			} else {
				fmt.Fprintf(&source, "t[%s] = %d\n", key, i)
				m.set(key, i)
			}
		}
		source.WriteString(`local s = #t .. ":"
			for k, v in pairs(t) do
				if type(k) == "string" then k = '"' .. k .. '"' end
				s = s .. tostring(k) .. "=" .. v .. " "
			end
			return s
		end }`)
		o := compileAndRun(source.String(), script.Bounds{}, roomy)
		require.Empty(t, o.err.Reason, source.String())
		require.Equal(t, fmt.Sprintf("%q", m.String()), o.value, source.String())
	})
}

var keys = []string{"1", "2", "3", "4", "5", "6", "-1", "0", "true", "false",
	`"a"`, `"b"`, `"c"`, `"d"`, `"e"`, `"f"`, `"g"`, `"h"`, `"1"`, "1000000"}

// orderedModel keeps keys by their text; sequence holds how many of 1.. are in
// the sequence, holes included.
type orderedModel struct {
	values   map[string]int
	order    []string // fields, in order of insertion
	sequence int
}

func (m *orderedModel) inSequence(key string) bool {
	for i := 1; i <= m.sequence; i++ {
		if key == fmt.Sprint(i) {
			return true
		}
	}
	return false
}

func (m *orderedModel) set(key string, v int) {
	_, there := m.values[key]
	m.values[key] = v
	if there || m.inSequence(key) {
		return
	}
	m.order = append(m.order, key)
	for { // the sequence takes what continues it
		next := fmt.Sprint(m.sequence + 1)
		if _, ok := m.values[next]; !ok {
			return
		}
		m.sequence++
		m.forget(next)
	}
}

func (m *orderedModel) delete(key string) {
	_, there := m.values[key]
	delete(m.values, key)
	if !m.inSequence(key) {
		if there {
			m.forget(key)
		}
		return
	}
	for m.sequence > 0 {
		if _, ok := m.values[fmt.Sprint(m.sequence)]; ok {
			return
		}
		m.sequence--
	}
}

func (m *orderedModel) forget(key string) {
	for i, k := range m.order {
		if k == key {
			m.order = append(m.order[:i], m.order[i+1:]...)
			return
		}
	}
}

func (m *orderedModel) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", m.sequence)
	for i := 1; i <= m.sequence; i++ {
		if v, ok := m.values[fmt.Sprint(i)]; ok {
			fmt.Fprintf(&b, "%d=%d ", i, v)
		}
	}
	for _, k := range m.order {
		fmt.Fprintf(&b, "%s=%d ", k, m.values[k])
	}
	return b.String()
}
