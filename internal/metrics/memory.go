package metrics

import "github.com/prometheus/client_golang/prometheus"

// Memory is what requests take of a server's memory, in bytes.
type Memory interface {
	Limit() int64 // of the server
	Room() int64  // that requests may take at present, and answers the same
	Requests() int64
	Answers() int64
	Arriving() int64 // of requests that aren't complete
	Refused() uint64 // requests, since the start
}

// Memory shows the memory of requests.
func (m *Metrics) Memory(of Memory) {
	gauge := func(name, help string, f func() int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(f()) })
	}
	m.Registry.MustRegister(
		gauge("stoa_memory_limit_bytes", "The memory that the server may use.", of.Limit),
		gauge("stoa_memory_requests_max_bytes", "What requests may take of it at present, and streams and answers once more.", of.Room),
		gauge("stoa_memory_requests_bytes", "What requests take.", of.Requests),
		gauge("stoa_memory_arriving_bytes", "What requests take that are arriving.", of.Arriving),
		gauge("stoa_memory_answers_bytes", "What streams take, and answers that clients haven't taken yet.", of.Answers),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "stoa_memory_refused_total", Help: "Requests refused because those in progress take all the memory that there is for them.",
		}, func() float64 { return float64(of.Refused()) }),
	)
}
