package raftlog

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/membership"
)

// ConfChange is a step of a configuration as Raft takes it.
func ConfChange(s *membership.Step) *pb.ConfChange {
	kind := pb.ConfChangeRemoveNode
	switch s.Kind {
	case membership.AddVoter:
		kind = pb.ConfChangeAddNode
	case membership.AddNonvoter:
		kind = pb.ConfChangeAddLearnerNode
	}
	return &pb.ConfChange{Type: &kind, NodeId: &s.ID, Context: s.Encode()}
}

// StepIn reads the step of an entry that changes the configuration.
func StepIn(e *pb.Entry) (membership.Step, error) {
	cc := new(pb.ConfChange)
	if err := proto.Unmarshal(e.GetData(), cc); err != nil {
		return membership.Step{}, fmt.Errorf("change of a configuration: %w", err)
	}
	return membership.DecodeStep(cc.GetContext())
}
