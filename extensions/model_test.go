package extensions

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/stoa-kv/stoa/internal/extension"
)

// consumer is one of the queue's, as the model knows it.
type consumer struct{ id, lease string }

// queueModel is a sequential queue.
type queueModel struct {
	returned, items []string
	line            []consumer
	taken           map[consumer]string
}

func (m *queueModel) pop() (element string, ok bool) {
	from := &m.items
	if len(m.returned) > 0 {
		from = &m.returned
	}
	if len(*from) == 0 {
		return "", false
	}
	element = (*from)[0]
	*from = (*from)[1:]
	return element, true
}

func (m *queueModel) offer(to *[]string, element string) {
	if len(m.line) == 0 {
		*to = append(*to, element)
		return
	}
	m.taken[m.line[0]] = element
	m.line = m.line[1:]
}

func (m *queueModel) has(id string) (c consumer, element string, ok bool) {
	for c, element := range m.taken {
		if c.id == id {
			return c, element, true
		}
	}
	return consumer{}, "", false
}

func (m *queueModel) take(c consumer) {
	_, _, has := m.has(c.id)
	if has || slices.ContainsFunc(m.line, func(w consumer) bool { return w.id == c.id }) {
		return
	}
	if element, ok := m.pop(); ok {
		m.taken[c] = element
	} else {
		m.line = append(m.line, c)
	}
}

func (m *queueModel) giveUp(id string) {
	m.line = slices.DeleteFunc(m.line, func(w consumer) bool { return w.id == id })
	if c, element, ok := m.has(id); ok {
		delete(m.taken, c)
		m.offer(&m.returned, element)
	}
}

func (m *queueModel) expire(lease string) {
	m.line = slices.DeleteFunc(m.line, func(w consumer) bool { return w.lease == lease })
	var ids []string
	for c := range m.taken {
		if c.lease == lease {
			ids = append(ids, c.id)
		}
	}
	slices.Sort(ids)
	elements := make([]string, len(ids))
	for i, id := range ids {
		c, element, _ := m.has(id)
		elements[i] = element
		delete(m.taken, c)
	}
	for _, element := range elements {
		m.offer(&m.returned, element)
	}
}

// String is the expected content of the keys.
func (m *queueModel) String() string {
	var taken []string
	for c, element := range m.taken {
		taken = append(taken, c.id+"="+element)
	}
	slices.Sort(taken)
	var line []string
	for _, c := range m.line {
		line = append(line, c.id)
	}
	return fmt.Sprint(append(slices.Clone(m.returned), m.items...), line, taken)
}

func (s *service) below(prefix string) []string {
	var list []string
	p := extension.Pattern(prefix)
	for _, kv := range s.Range([]byte(prefix), func() []byte { _, end := p.Bounds(); return end }(), 0) {
		list = append(list, strings.TrimPrefix(string(kv.Key()), prefix)+"="+string(kv.Value()))
	}
	return list
}

// values are what is behind the = of each.
func values(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		_, out[i], _ = strings.Cut(s, "=")
	}
	return out
}

func (s *service) queue() string {
	return fmt.Sprint(values(s.below("/queue/items/")), values(s.below("/queue/line/")), s.below("/queue/taken/"))
}

func TestQueueIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, m := newService("queue"), &queueModel{taken: map[consumer]string{}}
		leases := map[string]string{}
		n := 0
		some := func() consumer {
			id := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id")
			// An id has the lease that it began with.
			if _, _, has := m.has(id); !has && !slices.ContainsFunc(m.line, func(w consumer) bool { return w.id == id }) {
				leases[id] = rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "lease")
			}
			return consumer{id, leases[id]}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 7).Draw(t, "op") {
			case 0, 6:
				n++
				s.line(fmt.Sprint("put /queue/add e", n))
				m.offer(&m.items, fmt.Sprint("e", n))
			case 1:
				got := s.line("get /queue/head")
				if element, ok := m.pop(); ok {
					require.Equal(t, "/queue/head="+element, got)
				} else {
					require.Equal(t, "nothing", got)
				}
			case 2, 7:
				c := some()
				key := "/queue/take/" + c.id
				if c.lease != "" {
					s.line("lease " + c.lease)
					key += "/" + c.lease
				}
				got := s.line("watch " + key)
				m.take(c)
				if _, element, ok := m.has(c.id); ok {
					require.Equal(t, "at once /queue/taken/"+c.id+"="+element, got)
				} else {
					require.Equal(t, "waits for /queue/taken/"+c.id, got)
				}
			case 3:
				c := some()
				s.line("del /queue/taken/" + c.id)
				if c, _, ok := m.has(c.id); ok {
					delete(m.taken, c)
				}
			case 4:
				c := some()
				s.line("del /queue/take/" + c.id)
				m.giveUp(c.id)
			case 5:
				lease := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "lease")
				s.line("expire " + lease)
				m.expire(lease)
			}
			require.Equal(t, m.String(), s.queue())
			require.Len(t, s.below("/queue/waiting/"), len(m.line))
		}
	})
}

// At any time the oldest candidate leads, alone, and all keys agree.
func TestElectionHasOneLeader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newService("election")
		var candidates []string // in the order of their arrival
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			lease := rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "lease")
			id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "name") + "-" + lease
			switch rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				s.line("lease " + lease)
				s.line("watch /election/campaign/" + id)
				if !slices.Contains(candidates, id) {
					candidates = append(candidates, id)
				}
			case 2:
				s.line("del /election/candidates/" + id)
				candidates = slices.DeleteFunc(candidates, func(c string) bool { return c == id })
			case 3:
				s.line("expire " + lease)
				candidates = slices.DeleteFunc(candidates, func(c string) bool { return strings.HasSuffix(c, "-"+lease) })
			}
			want := "nothing"
			var leads []string
			if len(candidates) > 0 {
				want = "/election/leader=" + candidates[0]
				leads = []string{candidates[0] + "="}
			}
			require.Equal(t, want, s.line("get /election/leader"))
			require.Equal(t, leads, s.below("/election/campaign/"))
			require.Len(t, s.below("/election/candidates/"), len(candidates))
		}
	})
}

// A semaphore has no more holders than its limit was at their arrival, none
// waits while a permit is free, and none overtakes.
func TestSemaphoreIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newService("semaphore")
		s.line("put /semaphore/limit/s 2")
		limit := 2
		var holders, waiting []consumer
		holds := func(list []consumer, id string) bool {
			return slices.ContainsFunc(list, func(c consumer) bool { return c.id == id })
		}
		without := func(list []consumer, gone func(c consumer) bool) []consumer {
			return slices.DeleteFunc(slices.Clone(list), gone)
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			lease := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "lease")
			c := consumer{rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name") + lease, lease}
			is := func(o consumer) bool { return o == c }
			switch op := rapid.IntRange(0, 5).Draw(t, "op"); op {
			case 0, 1:
				s.line("lease " + lease)
				verb := []string{"watch", "put"}[op]
				s.line(verb + " /semaphore/acquire/s/" + c.id + "/" + lease)
				switch {
				case holds(holders, c.id) || holds(waiting, c.id):
				case len(holders) < limit && len(waiting) == 0:
					holders = append(holders, c)
				case verb == "watch":
					waiting = append(waiting, c)
				}
			case 2:
				s.line("del /semaphore/holders/s/" + c.id)
				holders = without(holders, is)
			case 3:
				s.line("del /semaphore/waiting/s/" + c.id)
				waiting = without(waiting, is)
			case 4:
				s.line("expire " + lease)
				ended := func(o consumer) bool { return o.lease == lease }
				holders, waiting = without(holders, ended), without(waiting, ended)
			case 5:
				limit = rapid.IntRange(0, 4).Draw(t, "limit")
				s.line(fmt.Sprint("put /semaphore/limit/s ", limit))
			}
			for len(holders) < limit && len(waiting) > 0 {
				holders, waiting = append(holders, waiting[0]), waiting[1:]
			}
			for prefix, list := range map[string][]consumer{"/semaphore/holders/s/": holders, "/semaphore/waiting/s/": waiting} {
				var want []string
				for _, c := range list {
					want = append(want, c.id+"=")
				}
				slices.Sort(want)
				require.Equal(t, want, s.below(prefix), prefix)
			}
		}
	})
}
