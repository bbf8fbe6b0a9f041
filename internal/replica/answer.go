package replica

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"go.uber.org/zap"

	"github.com/stoa-kv/stoa/internal/fault"
)

// answer serves a call of another server.
func (r *Replica) answer(from uint64, c *Call) {
	reply := func(body []byte, err error) { r.reply(from, &Reply{ID: c.ID, Body: body, Err: err}) }
	switch c.Method {
	case methodAnnounce:
		r.announced(c.Body, reply)
	case methodBehind:
		r.helped(from, c.Generation, reply)
	case methodState:
		r.giveState(from, reply)
	case methodWindows:
		r.windows.told(r, c.Generation, c.Body)
		reply(nil, nil)
	default:
		if !r.seq.IsOpen() || c.Generation != r.generation() {
			reply(nil, fault.NotLeader)
			return
		}
		r.answerLeading(from, c, reply)
	}
}

// answerLeading serves a call for the server that stamps.
func (r *Replica) answerLeading(from uint64, c *Call, reply func([]byte, error)) {
	switch c.Method {
	case methodWrite:
		r.answerWrite(from, c, reply)
	case methodReadPoint:
		r.answerReadPoint(from, c.Body, reply)
	case methodReport:
		r.reported(c.Body, reply)
	default:
		if r.cfg.Machine.Fence.Now() != nil {
			reply(nil, fault.NotLeader) // the next one answers
			return
		}
		r.cfg.Serve(c.Method, c.Body, func(body []byte, err error) {
			if errors.Is(err, fault.Fenced) { // since then: this server, not the one that asks
				err = fault.NotLeader
			}
			reply(body, err)
		})
	}
}

func (r *Replica) answerWrite(from uint64, c *Call, reply func([]byte, error)) {
	w, err := decodeWrite(c.Body, r.all())
	switch {
	case errors.Is(err, fault.Moved):
		reply(nil, fault.Moved)
		return
	case err != nil:
		r.cfg.Logger.Warn("a peer forwarded a write that can't be read", zap.String("remote-peer-id", strconv.FormatUint(from, 16)), zap.Error(err))
		reply(nil, fault.Internal)
		return
	}
	w.Done = func(out Outcome) {
		if errors.Is(out.Err, fault.Fenced) { // this server, not the one that asks
			out.Err = fault.TimeoutLeaderFail
		}
		if !r.calls.r.Load().resized.has(out.Group, c.Generation) {
			out.Group = noneOfTheSender
		}
		body, err := encodeOutcome(out)
		reply(body, err)
	}
	if len(c.Trace) > 0 && r.cfg.Trace != nil {
		w.Trace = r.cfg.Trace(c.Trace)
	}
	r.Submit(w)
}

// reply sends an answer. If the network doesn't accept it, the caller is told
// that answers are lost, as soon as a message gets through.
func (r *Replica) reply(to uint64, m *Reply) {
	if !r.cfg.Network.Send(to, Packet{Reply: m}) {
		r.calls.answersLost(to)
	}
}

// answersLost records that answers to a peer's calls may be lost.
func (f *Calls) answersLost(peer uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owing[peer] = true
}

// reportLost tells the peers whose answers may be lost, so that they needn't
// wait until their calls time out.
func (f *Calls) reportLost() {
	f.mu.Lock()
	peers := slices.Sorted(maps.Keys(f.owing))
	clear(f.owing)
	f.mu.Unlock()
	r := f.r.Load()
	for _, peer := range peers {
		if !r.cfg.Network.Send(peer, Packet{AnswersLost: true}) {
			f.answersLost(peer)
		}
	}
}
