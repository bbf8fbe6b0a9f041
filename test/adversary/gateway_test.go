package adversary

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// pathOf is where the gateway has a method; "" if it hasn't.
func pathOf(md protoreflect.MethodDescriptor) string {
	rule, _ := proto.GetExtension(md.Options(), annotations.E_Http).(*annotations.HttpRule)
	return rule.GetPost()
}

// throughGateway makes the call by JSON over HTTP, with the first of its messages.
func (c *call) throughGateway(ctx context.Context, t *testing.T, w *twin, token string) string {
	body, err := protojson.Marshal(c.requests[0])
	if err != nil {
		return "no JSON" // a name that isn't UTF-8
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.server.ClientURL+c.method.path, bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return ""
	}
	if !c.none {
		r.Header.Set("Authorization", token)
	}
	for i := 0; i+1 < len(c.metadata); i += 2 {
		r.Header.Set("Grpc-Metadata-"+c.metadata[i], c.metadata[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "no request" // a token that no header can have
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return fmt.Sprintln(resp.StatusCode, c.plain(text), err)
}

// plain is an answer in JSON without what is forgiven.
func (c *call) plain(text []byte) string {
	var stream struct{ Result json.RawMessage }
	if json.Unmarshal(text, &stream) == nil && stream.Result != nil {
		text = stream.Result
	}
	out := c.method.out.New().Interface()
	if protojson.Unmarshal(text, out) != nil {
		return string(text)
	}
	return told(out, nil)
}
