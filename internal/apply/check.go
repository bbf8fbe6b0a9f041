package apply

import (
	"errors"

	"github.com/stoa-kv/stoa/internal/check"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/fault"
	"github.com/stoa-kv/stoa/internal/version"
)

// levelOfChecks is the level from which on servers compare their states while they run, and
// one that differs is fenced alone.
const levelOfChecks version.Level = 6

// Checks reports whether the servers of the cluster compare their states.
func (m *Machine) Checks() bool { return m.Level() >= levelOfChecks }

// mayLeaveChecks reports whether the cluster could go down to a level as far as the members' states go: one that
// differs has raised CORRUPT, and a release below would serve what it has.
func (m *Machine) mayLeaveChecks(to version.Level) bool {
	return to >= levelOfChecks || !m.alarms.Load().corrupt
}

// checks is what this machine has found at the last checks; under the locks of all stores. It
// reaches neither the state nor a result.
type checks struct {
	own    check.Own
	found  check.Report // at the last check; the zero place: none
	voters []uint64
	judged check.Place // of the last verdict
	how    check.Judgement
}

// Found is what this server has found at the check that it has executed last, and the voters
// there. It is called before anything else is executed in any partition.
func (m *Machine) Found() (digest check.Digest, at check.Place, voters []uint64) {
	return m.checks.found.Digest, m.checks.found.Place, m.checks.voters
}

// Judged is the check of the verdict that this server has executed last, and what it said about
// it; see [Machine.Found].
func (m *Machine) Judged() (check.Place, check.Judgement) { return m.checks.judged, m.checks.how }

// examine has each server compute the digest of its state here.
func (x *execution) examine(body []byte) Result {
	if err := x.covers(x.m.Placement().All()); err != nil {
		return x.failed(err)
	}
	version, err := check.DecodeVersion(body)
	if err != nil {
		return x.failed(unreadable(command.Check, body))
	}
	if version != check.Version {
		return Result{Rev: x.current()} // those that know it compare themselves
	}
	c := &x.m.checks
	at := check.Place{Group: x.m.Groups().Number(0), Term: x.first.Term, Index: x.first.Index}
	var voters []uint64
	for _, m := range x.m.Members() {
		if !m.GetIsLearner() {
			voters = append(voters, m.GetID())
		}
	}
	if digest := x.m.digest(); c.own.Executed(at, digest, voters) {
		c.found, c.voters = check.Report{Place: at, Digest: digest}, voters
	}
	return Result{Rev: x.current()}
}

// verdict has this server compare what it found at a check with what a majority did, and fences
// it, or ends that.
func (x *execution) verdict(body []byte) Result {
	if err := x.covers(x.m.Placement().All()); err != nil {
		return x.failed(err)
	}
	v, err := check.DecodeVerdict(body)
	switch {
	case errors.Is(err, check.ErrOtherVersion):
		return Result{Rev: x.current()}
	case err != nil:
		return x.failed(unreadable(command.Verdict, body))
	}
	m := x.m
	j, _ := m.checks.own.Judge(v)
	m.checks.judged, m.checks.how = v.Place, j
	if m.Fence.Judge(j, v) {
		m.refusal = nil
		if m.Fence.Now() != nil {
			m.refusal = fault.Fenced
		}
	}
	return Result{Rev: x.current()}
}

// Damaged fences this server, which has found damage in its state by itself. It returns false if that is
// known, or the state is another machine's by now.
func (m *Machine) Damaged() bool {
	all := m.Placement().All()
	m.lock(all)
	defer m.unlock(all)
	if errors.Is(m.refusal, fault.Moved) || !m.Fence.Damaged() {
		return false
	}
	m.refusal = fault.Fenced
	return true
}

// Differing names the parts in which this server differed from a verdict, for its operator.
func (m *Machine) Differing(v check.Verdict) string {
	_, own := m.checks.own.Judge(v)
	return own.Differing(v.Digest)
}
