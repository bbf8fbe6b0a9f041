package placement

// Span is a range of keys, written as in etcd's requests: an end of one zero
// byte means every key from Key on.
type Span struct{ Key, End []byte }

// Difference is where keys can be that two maps put into different partitions,
// in order and without overlap. Outside of it they agree, so that moving keys
// costs what moves and not what there is.
func Difference(from, to *Map) []Span {
	if from.slots != to.slots || from.partitions != to.partitions {
		return []Span{{nil, []byte{0}}}
	}
	var spans []Span
	a, b := from.Rules(), to.Rules()
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Key < b[0].Key:
			spans, a = add(spans, a[0]), a[1:]
		case len(a) == 0 || b[0].Key < a[0].Key:
			spans, b = add(spans, b[0]), b[1:]
		default:
			if to.slots[a[0].Slot] != to.slots[b[0].Slot] {
				spans = add(spans, a[0])
			}
			a, b = a[1:], b[1:]
		}
	}
	return spans
}

// add adds the keys that a rule is for, unless they are there already: rules
// come in order, so only the last span can hold them.
func add(spans []Span, r Rule) []Span {
	if n := len(spans); n > 0 && r.Key < string(spans[n-1].End) {
		return spans
	}
	s := Span{Key: []byte(r.Key)}
	if r.subtree() {
		s.End = append([]byte(r.Key[:len(r.Key)-1]), '/'+1)
	} else {
		s.End = append([]byte(r.Key), 0)
	}
	return append(spans, s)
}
