package sidecar

import (
	"context"

	"github.com/stoa-kv/stoa/client"
)

// session is a carrier.
type session struct{ *client.Session }

func (s session) send(batch []*request) ([]answer, error) {
	b := s.Batch()
	answers := make([]answer, len(batch))
	for i, r := range batch {
		answers[i] = b.Encoded(r.kind, r.body)
	}
	return answers, b.Send(context.Background())
}

func (s session) call(ctx context.Context, r shared) ([]byte, error) {
	var out frame
	err := s.Invoke(ctx, methods[r.kind], &frame{r.body}, &out, invokeOptions...)
	return out.data, err
}

var invokeOptions = callOptions()
