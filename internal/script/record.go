package script

// Field is a key and a value of a table that the host makes.
type Field struct {
	Name  string
	Value Value
}

// Record makes a table of a shape to be an argument of one [Module.Call], before the
// call and at no charge to it. Fields that are nil are left out; names must differ.
func Record(shape *Shape, fields ...Field) Value {
	t := &Table{fields: make([]field, 0, len(fields)), shape: shape}
	t.fill(fields)
	return t.Value()
}

// NewRecord makes such a table inside a call, charged.
func (c *Call) NewRecord(shape *Shape, fields ...Field) (v Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = recovered(r)
		}
	}()
	c.allocate(tableBytes, c.at)
	c.allocate(int64(len(fields))*fieldBytes, c.at)
	t := &Table{fields: make([]field, 0, len(fields)), shape: shape}
	t.fill(fields)
	return t.Value(), nil
}

// fill adds fields for which there is room. They are not indexed before a script adds
// more: hosts' names are few and short.
func (t *Table) fill(fields []Field) {
	for _, f := range fields {
		if !f.Value.IsNil() {
			t.fields = append(t.fields, field{String(f.Name), f.Value})
		}
	}
}
