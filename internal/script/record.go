package script

// Field is a key and a value of a table that the host makes.
type Field struct {
	Name  string
	Value Value
}

// Record makes a table to be an argument of one [Module.Call], before the call
// and at no charge to it. Fields that are nil are left out; names must differ.
func Record(fields ...Field) Value {
	t := &Table{fields: make([]field, 0, len(fields))}
	if len(fields) > smallTable {
		t.index = &index{}
	}
	t.fill(fields)
	return t.Value()
}

// NewRecord makes such a table inside a call, charged.
func (c *Call) NewRecord(fields ...Field) (Value, error) {
	t, err := c.NewTable(0, len(fields))
	if err != nil {
		return Value{}, err
	}
	t.fill(fields)
	return t.Value(), nil
}

// fill adds fields for which there is room.
func (t *Table) fill(fields []Field) {
	for _, f := range fields {
		if f.Value.IsNil() {
			continue
		}
		t.fields = append(t.fields, field{String(f.Name), f.Value})
		if t.index != nil {
			t.index.put(String(f.Name), len(t.fields)-1)
		}
	}
}
