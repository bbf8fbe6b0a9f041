// Generate compiles the .proto files named as arguments and writes Go code for
// them beside them. It stands in for protoc, which is not available from the
// Go module proxy, and is a module of its own so that its dependencies stay
// out of the server's.
//
//	usage: generate ROOT FILE...    (FILE relative to ROOT)
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	_ "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/pluginpb"
)

// Generated code must not depend on what is newest today.
var plugins = []string{
	"google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12",
	"google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2",
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: generate ROOT FILE...")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate(root string, files []string) error {
	compiler := protocompile.Compiler{
		Resolver: protocompile.CompositeResolver{
			&protocompile.SourceResolver{ImportPaths: []string{root}},
			protocompile.ResolverFunc(known),
		},
		SourceInfoMode: protocompile.SourceInfoStandard, // comments go into the Go code
	}
	compiled, err := compiler.Compile(context.Background(), files...)
	if err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	req := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: files,
		Parameter:      proto.String("paths=source_relative"),
	}
	added := map[string]bool{}
	for _, f := range compiled {
		add(req, f, added)
	}
	for _, p := range plugins {
		if err := run(p, root, req); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}

// known finds the files that come with etcd's API.
func known(path string) (protocompile.SearchResult, error) {
	f, err := protoregistry.GlobalFiles.FindFileByPath(path)
	return protocompile.SearchResult{Desc: f}, err
}

// add adds a file and, before it, what it imports.
func add(req *pluginpb.CodeGeneratorRequest, f protoreflect.FileDescriptor, added map[string]bool) {
	if added[f.Path()] {
		return
	}
	added[f.Path()] = true
	content := protodesc.ToFileDescriptorProto(f)
	for i := range f.Imports().Len() {
		imported := f.Imports().Get(i).FileDescriptor
		// etcd's files import each other under other names than those that they have.
		if imported.IsPlaceholder() {
			content.Dependency[i] = path.Base(imported.Path())
			if found, err := protoregistry.GlobalFiles.FindFileByPath(content.Dependency[i]); err == nil {
				imported = found
			}
		}
		add(req, imported, added)
	}
	req.ProtoFile = append(req.ProtoFile, content)
}

func run(plugin, root string, req *pluginpb.CodeGeneratorRequest) error {
	in, err := proto.Marshal(req)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	cmd := exec.Command("go", "run", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("run: %w", err)
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &resp); err != nil {
		return fmt.Errorf("decode response: %w", err)
	}
	if resp.Error != nil {
		return fmt.Errorf("refused: %s", resp.GetError())
	}
	for _, f := range resp.File {
		if err := os.WriteFile(filepath.Join(root, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}
