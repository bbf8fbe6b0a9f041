package main

// usl is Gunther's Universal Scalability Law: N cores do first·N/(1 + serial·(N−1) +
// crosstalk·N·(N−1)) operations per second. serial is the part of an operation's time
// that only one core at a time can spend, crosstalk what cores cost each other.
type usl struct {
	first             float64 // operations per second on one core
	serial, crosstalk float64
}

// fitUSL takes the serial part as measured, and gives what two cores lack beyond it to
// crosstalk, which is the pessimistic reading: crosstalk grows with the square.
func fitUSL(one, two, serial float64) usl {
	// two = 2·one/(1 + serial + 2·crosstalk)
	lacking := 2*one/two - 1 - serial
	return usl{first: one, serial: serial, crosstalk: max(lacking/2, 0)}
}

func (u usl) at(cores int) float64 {
	n := float64(cores)
	return u.first * n / (1 + u.serial*(n-1) + u.crosstalk*n*(n-1))
}

// optimistic is without crosstalk: Amdahl's law.
func (u usl) optimistic() usl { return usl{first: u.first, serial: u.serial} }
