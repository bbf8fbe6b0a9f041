package script

// Field is a key and a value of a [Record].
type Field struct {
	Name  string
	Value Value
}

// Record makes a table for an argument of [Module.Call], before the call and at
// no charge to it.
func Record(fields ...Field) Value {
	t := &Table{fields: make([]field, len(fields))}
	for i, f := range fields {
		t.fields[i] = field{String(f.Name), f.Value}
	}
	return tableValue(t)
}
