package sim

import (
	"slices"

	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/command"
	"github.com/stoa-kv/stoa/internal/replica"
)

// In some of the runs with users of few rights these get other passwords, or are deleted while they ask and come again under the
// same names. Who comes again is another: it has none of the leases and sessions of the one before. Some write to sessions
// that aren't theirs.

// replace has a user get another password, or another come in its place.
func (s *steward) replace(i int, done func()) {
	u := s.users[i]
	if s.c.loop.chance(2) {
		s.k.all([]*pb.InternalRaftRequest{{AuthUserChangePassword: &pb.AuthUserChangePasswordRequest{Name: u.name}}}, true, func() {
			if now := s.known(u); now != nil && now.ID == u.id {
				u.credential = now.Credential
				s.c.stats.Passwords++
			}
			done()
		})
		return
	}
	s.k.all([]*pb.InternalRaftRequest{
		{AuthUserDelete: &pb.AuthUserDeleteRequest{Name: u.name}},
		{AuthUserAdd: &pb.AuthUserAddRequest{Name: u.name}},
		{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: u.name, Role: u.role()}},
	}, true, func() {
		if now := s.known(u); now != nil && now.Credential > u.credential {
			s.users[i] = &fewUser{name: u.name, id: now.ID, credential: now.Credential}
			s.c.stats.Successors++
		}
		done()
	})
}

// barred reports whether the user of the session can't log in anew, or else does so.
func (cl *sessionClient) barred() bool {
	s := cl.present
	if s.few == nil {
		return s.term != nil
	}
	now := cl.c.steward.known(s.few)
	if now == nil || now.ID != s.few.id {
		return true
	}
	s.few.credential = now.Credential
	return false
}

// known is the newest that any server knows of a user.
func (s *steward) known(u *fewUser) (newest *auth.User) {
	for _, sv := range s.c.servers {
		if sv.life == nil {
			continue
		}
		if now := sv.life.core.machine.Auth().User(u.name); now != nil && (newest == nil || now.Credential > newest.Credential) {
			newest = now
		}
	}
	return newest
}

// forge writes to the log what a session of another would write next, as no server does: a user takes part in the
// sessions that it has opened alone.
func (s *steward) forge(session *sessionPast, l *life, u *fewUser) {
	c := s.c
	put := &pb.PutRequest{Key: c.single(), Value: c.value()}
	body, err := proto.Marshal(put)
	if err != nil {
		panic(err)
	}
	seq := uint64(len(session.asked) + 1)
	q := command.Sequenced{Session: session.id, Seq: seq, Pred: uint64(session.replied), Answered: uint64(session.replied), Kind: command.Put, Body: body}
	c.loop.printf("%s forges request %d of session %d", u.name, seq, session.id)
	c.stats.Forged++
	m := l.core.machine
	l.core.replica.Submit(&replica.Write{
		Command: command.Command{Kind: command.InSession, User: u.credential, Body: q.AppendTo(nil)},
		Parts:   m.PutInSession(put.Key), Home: int32(m.PutInSession(put.Key).First()), Session: true,
		Done: func(out replica.Outcome) {
			if out.Err == nil {
				c.fail("users", "%s has written as session %d, which is another's", u.name, session.id)
			}
		},
	})
}

// sentBy notes a credential with which a request is sent.
func (o *op) sentBy(credential uint64) {
	switch {
	case o.user == 0:
		o.user = credential
	case !o.by(credential):
		o.again = append(slices.Clip(o.again), credential)
	}
}
