package top

import (
	"time"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// Sample is what is known of a cluster at about one moment.
type Sample struct {
	Time    time.Time
	Cluster uint64
	Servers []Server
	// Partitions are those of the leader, or nil.
	Partitions *stoapb.ListPartitionsResponse
	// Trouble is what could not be asked, and why.
	Trouble []string
}

// Server is a member.
type Server struct {
	ID      uint64
	Name    string
	Numbers *Numbers // nil if there is no answer
	Trouble string   // then, why
}

// Numbers are a server's metrics.
type Numbers struct {
	ID              uint64
	Release         string // of stoa
	Leader, Learner bool
	Moving          bool
	Alarms          []Alarm

	Revision, Keys, Leases, Sessions int64
	Watches, SlowWatches             int64
	FileBytes, LogBytes              int64

	// Since the server's start.
	Puts, Deletes, Ranges, Txns, Events float64

	Loops      []Loop // by partition
	Extensions []Extension
}

// Alarm is one that is raised.
type Alarm struct {
	Member string `json:"member"` // its ID, in hexadecimal
	Type   string `json:"type"`
}

// Loop is that of a partition, on one server.
type Loop struct {
	Load        float64
	Keys, Bytes int64
}

// Extension is what calls of an extension have done since the server's start.
type Extension struct {
	Name                         string
	Disabled                     bool
	Calls, Steps, Writes, Errors float64
}

// leader is the server that says that it leads, or nil.
func (s *Sample) leader() *Server {
	for i := range s.Servers {
		if n := s.Servers[i].Numbers; n != nil && n.Leader {
			return &s.Servers[i]
		}
	}
	return nil
}

// Leader is the ID of the server that leads, 0 if none says so.
func (s *Sample) Leader() uint64 {
	if l := s.leader(); l != nil {
		return l.ID
	}
	return 0
}

// first is the leader, or else any server that has answered, or nil.
func (s *Sample) first() *Server {
	if l := s.leader(); l != nil {
		return l
	}
	for i := range s.Servers {
		if s.Servers[i].Numbers != nil {
			return &s.Servers[i]
		}
	}
	return nil
}

func (s *Sample) server(id uint64) *Server {
	for i := range s.Servers {
		if s.Servers[i].ID == id {
			return &s.Servers[i]
		}
	}
	return nil
}
