package replica

// effects are calls that leave the package: answers to clients above all, who may come
// back at once. They come up under locks and are carried out under none.
type effects []func()

func (e *effects) add(f ...func()) { *e = append(*e, f...) }

func (e effects) run() {
	for _, f := range e {
		f()
	}
}
