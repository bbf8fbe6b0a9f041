package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// keeping is a HeldGet's receiver that keeps the answer until it is asked.
type keeping struct{ answers chan *clientv3.GetResponse }

func (k keeping) Answered(a *clientv3.GetResponse, err error) {
	if err != nil {
		a = nil
	}
	k.answers <- a
}

// A held read is resolved when its receiver wants it, and counts as answered before.
func TestHeldGet(t *testing.T) {
	s := bareSession(t)
	sent, got := s.Counts()
	require.Zero(t, sent+got)
	k := keeping{make(chan *clientv3.GetResponse, 1)}
	h := &HeldGet{To: k}
	require.NoError(t, s.GetHeld(t.Context(), "key", h))
	a := <-k.answers
	require.NotNil(t, a)
	sent, got = s.Counts()
	require.EqualValues(t, 1, sent)
	require.EqualValues(t, 1, got)
	select {
	case <-h.Awaited().Done():
		t.Fatal("resolved too early")
	case <-time.After(time.Millisecond):
	}
	h.Resolve(a, nil)
	same, err := h.Awaited().Wait(t.Context())
	require.NoError(t, err)
	require.Same(t, a, same)

	s.Abandon(ErrSessionExpired)
	require.ErrorIs(t, s.GetHeld(t.Context(), "key", &HeldGet{To: k}), ErrSessionExpired)
	require.Empty(t, k.answers, "what isn't sent gets no answer")
}
