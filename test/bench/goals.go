package main

// goal is what stoa must reach beside etcd in one run, as ratios stoa : etcd. Zero
// means that nothing is asked.
type goal struct {
	rate float64 // at least
	cpu  float64 // at most
	p50  float64 // at most
	p99  float64 // at most
}

// goals holds for values of 256 B. With many clients throughput and the servers' CPU
// time per operation count; with one client nobody may wait longer than on etcd.
func goals(nodes int, op string, clients int) goal {
	switch {
	case clients == 1 && op != "sget":
		return goal{p50: 1, p99: 1}
	case clients < 1000:
		return goal{}
	case nodes == 1 && op == "put":
		return goal{rate: 1.7, cpu: 0.5}
	case nodes == 1 && op == "get":
		return goal{rate: 1.3, cpu: 0.65}
	case nodes == 3 && op == "put":
		return goal{rate: 3.5, cpu: 0.25}
	case nodes == 3 && op == "get":
		return goal{rate: 2, cpu: 0.4}
	}
	return goal{}
}

// met judges a measured pair; the text names each ratio that falls short.
func (g goal) met(base, own sample) (asked bool, misses []string) {
	for _, c := range []struct {
		name      string
		own, base float64
		goal      float64
		atLeast   bool
	}{
		{"throughput", own.rate, base.rate, g.rate, true},
		{"CPU", float64(own.cpu), float64(base.cpu), g.cpu, false},
		{"p50", float64(own.p50), float64(base.p50), g.p50, false},
		{"p99", float64(own.p99), float64(base.p99), g.p99, false},
	} {
		if c.goal == 0 {
			continue
		}
		asked = true
		ratio := c.own / c.base
		// The histogram's buckets are 3 % wide; a latency within one is the same.
		if c.atLeast && ratio < c.goal || !c.atLeast && ratio > c.goal*1.03 {
			misses = append(misses, c.name+" "+ratioText(ratio)+" of "+ratioText(c.goal))
		}
	}
	return asked, misses
}
