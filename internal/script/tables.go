package script

var tableFunctions = []Function{
	{Name: "table.insert", Min: 2, Max: 3, builtin: tableInsert},
	{Name: "table.remove", Min: 1, Max: 2, builtin: tableRemove},
	{Name: "table.concat", Min: 1, Max: 4, builtin: tableConcat},
	{Name: "table.sort", Min: 1, Max: 2, builtin: tableSort},
}

// writable refuses a table that a builtin would change behind set's back.
func (c *Call) writable(t *Table, at position) {
	if t.loaded && !c.loading {
		fail(at, "this table was made while the file was loaded, and nothing is kept between calls: make a new table, or use put")
	}
}

func tableInsert(c *Call, args []Value) Value {
	t, v := c.table("table.insert", args, 0), args[len(args)-1]
	if v.IsNil() {
		fail(c.at, "table.insert wants a value, not nil")
	}
	c.writable(t, c.at)
	n := int64(len(t.list))
	i := n + 1
	if len(args) == 3 {
		if i = c.int("table.insert", args, 1); i < 1 || i > n+1 {
			fail(c.at, "table.insert wants a place from 1 to %d, not %d", n+1, i)
		}
	}
	c.move(int(n+1-i), c.at)
	c.push(t, v, c.at)
	if i <= n {
		copy(t.list[i:n+1], t.list[i-1:n])
		t.list[i-1] = v
	}
	return Value{}
}

func tableRemove(c *Call, args []Value) Value {
	t := c.table("table.remove", args, 0)
	c.writable(t, c.at)
	n := int64(len(t.list))
	i := n
	if len(args) == 2 {
		i = c.int("table.remove", args, 1)
	}
	if n == 0 || i == n+1 {
		return Value{}
	}
	if i < 1 || i > n {
		fail(c.at, "table.remove wants a place from 1 to %d, not %d", n, i)
	}
	c.move(int(n-i), c.at)
	v := t.list[i-1]
	copy(t.list[i-1:], t.list[i:])
	t.list[n-1] = Value{}
	t.trim()
	return v
}

func tableConcat(c *Call, args []Value) Value {
	t, separator := c.table("table.concat", args, 0), ""
	if len(args) > 1 {
		separator = c.string("table.concat", args, 1)
	}
	first, last := int64(1), int64(len(t.list))
	if len(args) > 2 {
		first = c.int("table.concat", args, 2)
	}
	if len(args) > 3 {
		last = c.int("table.concat", args, 3)
	}
	if first > last {
		return String("")
	}
	if first < 1 || last > int64(len(t.list)) {
		fail(c.at, "table.concat wants places from 1 to %d, not %d to %d", len(t.list), first, last)
	}
	c.spend(last-first+1, c.at)
	return c.join(t.list[first-1:last], separator, "table.concat", c.at)
}

// tableSort merges: a fixed number of comparisons for any results of the comparator,
// and equal items stay in their order.
func tableSort(c *Call, args []Value) Value {
	at, t := c.at, c.table("table.sort", args, 0)
	c.writable(t, at)
	less := func(a, b Value) bool {
		c.spend(compareSteps, at)
		return c.less(a, b, at)
	}
	if len(args) == 2 && !args[1].IsNil() {
		if !args[1].isFunction() {
			c.wrong("table.sort", args, 1, "function")
		}
		fn := args[1].closure()
		if fn.native != nil {
			fail(at, "table.sort wants a function of the script")
		}
		pair := make([]Value, 2)
		less = func(a, b Value) bool {
			c.spend(compareSteps, at)
			pair[0], pair[1] = a, b
			return c.invoke(fn, pair, at).Truthy()
		}
	}
	n := len(t.list)
	c.allocate(int64(n)*itemBytes, at)
	c.allocate(int64(n)*itemBytes, at)
	from, to := make([]Value, n), make([]Value, n)
	for i, v := range t.list {
		if v.IsNil() {
			fail(at, "table.sort: item %d is nil", i+1)
		}
		from[i] = v
	}
	for width := 1; width < n; width *= 2 {
		for low := 0; low < n; low += 2 * width {
			middle, high := min(low+width, n), min(low+2*width, n)
			merge(to[low:high], from[low:middle], from[middle:high], less)
			c.work((high-low)*itemBytes, at)
		}
		from, to = to, from
	}
	if len(t.list) != n {
		fail(at, "the table was changed while it was sorted")
	}
	copy(t.list, from)
	return Value{}
}

func merge(to, left, right []Value, less func(a, b Value) bool) {
	for i := range to {
		if len(left) == 0 || len(right) > 0 && less(right[0], left[0]) {
			to[i], right = right[0], right[1:]
		} else {
			to[i], left = left[0], left[1:]
		}
	}
}
