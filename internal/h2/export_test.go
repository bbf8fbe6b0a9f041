package h2

import "time"

// ArriveWithin has messages that hold room arrive sooner.
func (o Options) ArriveWithin(d time.Duration) Options {
	o.arriveWithin = d
	return o
}

// SlimEvery has connections give back sooner what they can do without.
func (o Options) SlimEvery(d time.Duration) Options {
	o.slimEvery = d
	return o
}
