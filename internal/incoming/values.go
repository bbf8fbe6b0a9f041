package incoming

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// Values returns the values of a field, whose name is in lower case. They must not be changed.
func Values(ctx context.Context, field string) []string {
	md, _ := ctx.Value(key).(metadata.MD)
	return md[field]
}

// First returns the first value of a field, "" if there is none.
func First(ctx context.Context, field string) string {
	if v := Values(ctx, field); len(v) > 0 {
		return v[0]
	}
	return ""
}

// key is what package metadata looks the metadata up by.
var key = func() any {
	var p probe
	metadata.FromIncomingContext(&p)
	return p.key
}()

// probe is a context that notes what is looked up in it.
type probe struct {
	context.Context
	key any
}

func (p *probe) Value(key any) any {
	p.key = key
	return nil
}
