package rpc

import (
	"fmt"
	"path"

	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// ServeReflection lets clients ask for the services and messages that there are, those of
// later registrations included. It must be called before Serve.
func (s *Server) ServeReflection() error {
	files, err := describedFiles()
	if err != nil {
		return fmt.Errorf("gRPC reflection: %w", err)
	}
	o := reflection.ServerOptions{Services: s.Server, DescriptorResolver: files}
	grpc_reflection_v1.RegisterServerReflectionServer(s, reflection.NewServerV1(o))
	grpc_reflection_v1alpha.RegisterServerReflectionServer(s, reflection.NewServer(o))
	return nil
}

// describedFiles is what the program was linked with. etcd's files are registered under
// other names than those by which they import each other, so a client couldn't put them
// together; here they import what there is.
func describedFiles() (*protoregistry.Files, error) {
	var set descriptorpb.FileDescriptorSet
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		described := protodesc.ToFileDescriptorProto(f)
		for i := range f.Imports().Len() {
			if imported := f.Imports().Get(i); imported.IsPlaceholder() {
				described.Dependency[i] = path.Base(imported.Path())
			}
		}
		set.File = append(set.File, described)
		return true
	})
	return protodesc.NewFiles(&set)
}
