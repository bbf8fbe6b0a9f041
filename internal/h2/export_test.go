package h2

import "time"

// ArriveWithin has messages that hold room arrive sooner.
func (o Options) ArriveWithin(d time.Duration) Options {
	o.arriveWithin = d
	return o
}
