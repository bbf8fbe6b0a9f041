package replica

// effects are calls out of the package, mostly answers to clients, whose
// callbacks may call back at once. They are collected under locks and run
// without any.
type effects []func()

func (e *effects) add(f ...func()) { *e = append(*e, f...) }

func (e effects) run() {
	for _, f := range e {
		f()
	}
}
