package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	stoapb "github.com/stoa-kv/stoa/api/stoa/v1"
)

// fakeExtensions is a server's extension whose source is the value of the fake's key foo.
type fakeExtensions struct {
	stoapb.UnimplementedExtensionsServer
}

func (*fakeExtensions) Logs(r *stoapb.ExtensionLogsRequest, stream stoapb.Extensions_LogsServer) error {
	err := stream.Send(&stoapb.ExtensionLogsResponse{MemberId: 0xa1, Missed: 2, Calls: []*stoapb.ExtensionCall{
		{Time: 1e9 + 5e6, Revision: 7, Handler: "put", Key: "/a key", Lines: []string{"one", "two"}, Error: "why"},
		{Time: 2e9, Revision: 8, Error: "too much", Undone: true},
	}})
	if err != nil || !r.GetFollow() {
		return err
	}
	return status.Errorf(codes.NotFound, "stoa: extension %q was removed", r.GetName())
}

func (*fakeExtensions) Profile(r *stoapb.ExtensionProfileRequest, stream stoapb.Extensions_ProfileServer) error {
	return stream.Send(&stoapb.ExtensionProfileResponse{
		MemberId: 0xa1, Revision: foo.ModRevision, Duration: r.GetDuration(), Calls: 2, Ended: "the server is stopping",
		Lines: []*stoapb.ExtensionLine{{Line: 1, Calls: 2, Steps: 30}, {Line: 3, Calls: 1, Steps: 10}},
	})
}

func TestExtensionLogs(t *testing.T) {
	_, addr := startFake(t)
	const want = "1970-01-01T00:00:01.005Z rev 7 put \"/a key\": one\n" +
		"1970-01-01T00:00:01.005Z rev 7 put \"/a key\": two\n" +
		"1970-01-01T00:00:01.005Z rev 7 put \"/a key\" failed: why\n" +
		"1970-01-01T00:00:02.000Z rev 8 undone: too much\n"
	code, out, errs := call("", nil, "extension", "logs", "e", "--endpoints", addr)
	require.Zero(t, code)
	require.Equal(t, want, out)
	require.Equal(t, "2 earlier calls were dropped\n", errs)
	code, out, errs = call("", nil, "extension", "logs", "e", "--follow", "--endpoints", addr)
	require.Equal(t, 1, code)
	require.Equal(t, want, out)
	require.Contains(t, errs, "was removed")
	_, out, _ = call("", nil, "extension", "logs", "e", "-w", "json", "--endpoints", addr)
	require.Equal(t, `{"member_id":161,"time":"1970-01-01T00:00:01.005Z","revision":7,"handler":"put","key":"/a key","lines":["one","two"],"error":"why"}`+"\n"+
		`{"member_id":161,"time":"1970-01-01T00:00:02Z","revision":8,"error":"too much","undone":true}`+"\n", out)
}

func TestExtensionProfile(t *testing.T) {
	_, addr := startFake(t)
	code, out, errs := call("", nil, "extension", "profile", "e", "--duration", "3s", "--endpoints", addr)
	require.Zero(t, code)
	require.Equal(t, ""+
		"e: 2 calls, 40 steps\n"+
		"     calls        steps  share\n"+
		"         2           30  75.0%     1  bar\n"+
		"         .            .      .     2\n"+
		"         1           10  25.0%     3\n", out)
	require.Equal(t, "ended after 3s: the server is stopping\n", errs)
	_, out, _ = call("", nil, "extension", "profile", "e", "-w", "json", "--endpoints", addr)
	require.Equal(t, `{"name":"e","member_id":161,"revision":3,"seconds":10,"calls":2,"steps":40,"lines":[{"line":1,"calls":2,"steps":30},{"line":3,"calls":1,"steps":10}]}`+"\n", out)
	code, _, _ = call("", nil, "extension", "profile", "e", "--duration", "-1s", "--endpoints", addr)
	require.Equal(t, exitBadArgs, code)
	code, out, _ = call("", nil, "extension", "profile", "e", "-w", "table", "--endpoints", addr)
	require.Equal(t, exitBadFeature, code)
	require.Empty(t, out)
}

// Without its source, a profile has the lines that calls reached.
func TestAProfileWithoutItsSource(t *testing.T) {
	p := profiled{Name: "e", Calls: 1}
	p.add(7, 1, 10)
	var out strings.Builder
	p.list(&printer{&out, false})
	require.Equal(t, "e: 1 calls, 10 steps\n     calls        steps  share\n         1           10 100.0%     7\n", out.String())
}

func TestSourceOnATerminal(t *testing.T) {
	require.Equal(t, "    local s = \"a\ufffd[31mé\"", printable("\tlocal s = \"a\x1b[31mé\"\r"))
}

// extension test prints a profile of what it has carried out; its steps are those of the
// runs.
func TestProfileWithoutACluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sum.lua")
	require.NoError(t, os.WriteFile(file, []byte(`return {
  scope = { "/s/" }, operations = { { op = "put", prefix = "/s/" } },
  put = function(r)
    local sum = 0
    for i = 1, tonumber(r.value) do
      sum = sum + i
    end
    put("/s/sum", sum)
  end,
}
`), 0o600))
	code, out, errs := call("", nil, "extension", "test", file, "--profile", "-r", "put /s/x 10", "-r", "put /s/x 20")
	require.Zero(t, code, errs)
	steps := 0
	for _, ran := range regexp.MustCompile(`: (\d+) steps`).FindAllStringSubmatch(out, -1) {
		var n int
		_, err := fmt.Sscan(ran[1], &n)
		require.NoError(t, err)
		steps += n
	}
	require.Contains(t, out, fmt.Sprintf("sum: 2 calls, %d steps\n", steps))
	require.Regexp(t, `(?m)^ +2 +\d+ +\d+\.\d% +6        sum = sum \+ i$`, out)
	require.Regexp(t, `(?m)^ +\. +\. +\. +1  return \{$`, out)
}

// A server that doesn't answer is waited for no longer than a command may take, and the
// duration.
func TestLogsOfAServerThatIsDown(t *testing.T) {
	began := time.Now()
	code, _, errs := call("", nil, "extension", "logs", "e", "--endpoints", "127.0.0.1:1", "--command-timeout", "200ms", "--dial-timeout", "100ms")
	require.Equal(t, 1, code)
	require.Contains(t, errs, "no answer from 127.0.0.1:1")
	require.Less(t, time.Since(began), 20*time.Second)
}
