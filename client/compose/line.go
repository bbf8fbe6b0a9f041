package compose

// line is a queue that reuses its memory.
type line struct {
	all  []queued
	head int
}

func (l *line) len() int      { return len(l.all) - l.head }
func (l *line) first() queued { return l.all[l.head] }

// waiting are all of them.
func (l *line) waiting() []queued { return l.all[l.head:] }

func (l *line) push(q queued) {
	if l.head > 0 && len(l.all) == cap(l.all) {
		n := copy(l.all, l.all[l.head:])
		clear(l.all[n:])
		l.all, l.head = l.all[:n], 0
	}
	l.all = append(l.all, q)
}

func (l *line) pop() queued {
	q := l.all[l.head]
	l.all[l.head] = queued{}
	if l.head++; l.head == len(l.all) {
		l.all, l.head = l.all[:0], 0
	}
	return q
}
