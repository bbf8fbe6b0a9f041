// Package lockpb has the messages and services of etcd's v3lock and v3election,
// on the wire the same as etcd's. Read the .proto files; the Go code is generated
// from them by api/generate.sh.
//
// Go code that etcd has for them is in the module of its server. A program that
// links both fails at its start, because both register the same names: hence an
// internal package. Clients in Go need neither, but package concurrency of etcd's
// client, which shares locks and elections with these services.
package lockpb
