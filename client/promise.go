package client

// Promise is a future whose answer somebody else gives than a session: for clients
// that are built over this one, as compose is.
type Promise[T any] struct{ Future[T] }

// Resolve gives the answer, once.
func (p *Promise[T]) Resolve(value T, err error) { p.resolve(value, err) }
