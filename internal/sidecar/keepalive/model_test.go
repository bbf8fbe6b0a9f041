package keepalive

import (
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// asking is a request of the model: the number of renewals sent when it came.
type asking struct {
	lease int64
	sent  int
}

// modelled is a stream beside what it has asked for.
type modelled struct {
	st      *Stream
	waiting []asking
	over    bool
}

// TestModel draws what clients and members do. An answer is the number of the renewal that it comes
// from.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := New(func() {})
		var all []*modelled
		sent, under := 0, map[int64]int{} // leases under way, and the numbers of their renewals
		open := func(t *rapid.T) *modelled {
			m := &modelled{st: h.Open(rapid.IntRange(1, 3).Draw(t, "program"), func() {})}
			all = append(all, m)
			return m
		}
		pick := func(t *rapid.T) *modelled {
			if n := rapid.IntRange(0, len(all)).Draw(t, "stream"); n < len(all) {
				return all[n]
			}
			return open(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) {
				m, lease := pick(t), rapid.Int64Range(1, 3).Draw(t, "lease")
				m.st.Ask(lease)
				if !m.over {
					m.waiting = append(m.waiting, asking{lease, sent})
				}
			},
			"close": func(t *rapid.T) {
				m := pick(t)
				m.st.Close()
				m.over, m.waiting = true, nil
			},
			"take": func(t *rapid.T) {
				lease, ok := h.Take()
				if !ok {
					for _, m := range all {
						for _, a := range m.waiting {
							if _, on := under[a.lease]; !on && !answered(m.st, m.waiting, a) {
								t.Fatalf("nobody renews lease %d", a.lease)
							}
						}
					}
					return
				}
				if _, twice := under[lease]; twice {
					t.Fatalf("lease %d is renewed twice at a time", lease)
				}
				if !wanted(all, lease) {
					t.Fatalf("lease %d is renewed for nobody", lease)
				}
				sent++
				under[lease] = sent
			},
			"renewed": func(t *rapid.T) {
				lease := rapid.Int64Range(1, 3).Draw(t, "lease")
				if n, ok := under[lease]; ok {
					delete(under, lease)
					h.Renewed(lease, binary.BigEndian.AppendUint64([]byte{byte(lease)}, uint64(n)))
				}
			},
			"lost": func(t *rapid.T) {
				lease := rapid.Int64Range(1, 3).Draw(t, "lease")
				if _, ok := under[lease]; ok {
					delete(under, lease)
					h.Lost(lease, errors.New("lost"))
				}
			},
			"read": func(t *rapid.T) {
				m := pick(t)
				for {
					answer, err := m.st.Next()
					if err != nil {
						m.over, m.waiting = true, nil
					}
					if answer == nil {
						return
					}
					lease, n := int64(answer[0]), int(binary.BigEndian.Uint64(answer[1:]))
					if len(m.waiting) == 0 || m.waiting[0].lease != lease {
						t.Fatalf("an answer for lease %d; asked for: %v", lease, m.waiting)
					}
					if n <= m.waiting[0].sent {
						t.Fatalf("answered by renewal %d, asked after %d were sent", n, m.waiting[0].sent)
					}
					m.waiting = m.waiting[1:]
				}
			},
		})
	})
}

// answered reports whether a request's answer is there, or its stream has failed.
func answered(st *Stream, waiting []asking, a asking) bool {
	if st.failed != nil {
		return true
	}
	for i := range waiting {
		if waiting[i] == a && st.requests[i].answer != nil {
			return true
		}
	}
	return false
}

func wanted(all []*modelled, lease int64) bool {
	for _, m := range all {
		for _, a := range m.waiting {
			if a.lease == lease && !m.over && m.st.failed == nil && !answered(m.st, m.waiting, a) {
				return true
			}
		}
	}
	return false
}
