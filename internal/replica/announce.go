package replica

import "sync/atomic"

// announceTicks is how long a server that was sent an announcement may take to answer:
// one that hangs must not delay registrations for longer.
const announceTicks = 10

// Announce tells the other servers of something that they should be prepared for when a
// later write is applied (Config.Announced), and calls done, from any goroutine, once each
// has answered that it is, can't be reached, or takes too long, with the number of those that
// haven't answered. So nothing depends on it but the time that the write then takes.
func (r *Replica) Announce(body []byte, done func(missing int)) {
	peers := r.Peers()
	var left, missing atomic.Int32
	left.Store(int32(len(peers)) + 1)
	answered := func(_ []byte, err error) {
		if err != nil {
			missing.Add(1)
		}
		if left.Add(-1) == 0 {
			done(int(missing.Load()))
		}
	}
	for _, id := range peers {
		r.calls.ask(id, methodAnnounce, body, r.now()+announceTicks, answered)
	}
	answered(nil, nil) // this server is
}

// announced answers an announcement of another server.
func (r *Replica) announced(body []byte, reply func([]byte, error)) {
	if r.cfg.Announced == nil {
		reply(nil, nil)
		return
	}
	r.cfg.Announced(body, func() { reply(nil, nil) })
}
