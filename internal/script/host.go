package script

// The methods of a call for host functions: they charge, and create tables. Failures are
// returned as errors, also where the package itself uses a panic.

// Host is the argument host of [Module.Call], for host functions.
func (c *Call) Host() any { return c.host }

// Charge takes steps and bytes from the rest of the call's limits. A host function must
// call it before it does the work, and return the error; the call ends even if it
// doesn't.
func (c *Call) Charge(steps, bytes int64) error {
	return c.charge(func() {
		c.hold(max(bytes, 0), c.at)
		c.spend(min(max(steps, 0), profileBias), c.at) // which no limit allows
	})
}

// Allocate is [Call.Charge] for an object of so many bytes, at the language's own price.
func (c *Call) Allocate(bytes int64) error {
	return c.charge(func() { c.allocate(max(bytes, 0), c.at) })
}

func (c *Call) charge(take func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = recovered(r)
		}
	}()
	take()
	return nil
}

// NewTable makes an empty table with room for so many values in sequence and so
// many others, charged.
func (c *Call) NewTable(items, fields int) (t *Table, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = recovered(r)
		}
	}()
	return c.newTable(roomFor(items), roomFor(fields), c.at), nil
}

// roomFor keeps the price of a table a number.
func roomFor(n int) int { return min(max(n, 0), 1<<40) }

// Set stores a value under a key, charged.
func (t *Table) Set(c *Call, key, value Value) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = recovered(r)
		}
	}()
	c.checkKey(key, c.at)
	c.set(t, key, value, c.at)
	return nil
}

// Append stores a value at the end of the sequence, charged.
func (t *Table) Append(c *Call, value Value) error {
	return t.Set(c, Int(int64(t.Len())+1), value)
}
