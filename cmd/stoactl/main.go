// Stoactl talks to stoa (and to etcd) from a command line.
//
// Where etcdctl has a command, stoactl's has its flags, its output forms and its
// exit codes. There is one file per subcommand; what they share is here (global
// flags and the connection), in show.go (output forms) and in ops.go (requests
// that stand alone as well as in a txn).
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func main() {
	a := &app{in: bufio.NewReader(os.Stdin), out: os.Stdout, errs: os.Stderr}
	os.Exit(a.run(os.Args[1:], os.Environ()))
}

// app is one call of stoactl.
type app struct {
	in        *bufio.Reader
	out, errs io.Writer
	o         globals
}

// globals are the flags that every subcommand has.
type globals struct {
	endpoints                 []string
	form                      string
	hex, debug                bool
	dial, command             time.Duration
	keepAlive, keepAliveLimit time.Duration
	cert, key, ca             string
	plain, skipVerify         bool
	user, password            string
	client, lease             string // see extension_caller.go
	compose                   string // see compose.go
}

// exit is an error with a status of its own; others exit with 1.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string { return e.err.Error() }
func (e *exit) Unwrap() error { return e.err }

// The statuses of etcdctl.
const (
	exitInvalidInput = 3
	exitInterrupted  = 5
	exitBadArgs      = 128
)

func badArgs(format string, args ...any) error {
	return &exit{exitBadArgs, fmt.Errorf(format, args...)}
}

func (a *app) run(args, environ []string) int {
	root := a.root()
	root.SetArgs(args)
	err := fromEnvironment(root.PersistentFlags(), environ)
	if err == nil {
		err = root.Execute()
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(a.errs, "Error:", err)
	var e *exit
	if errors.As(err, &e) {
		return e.code
	}
	return 1
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "stoactl", Short: "A command line client for stoa",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.checkCompose(cmd) },
	}
	root.SetOut(a.out)
	root.SetErr(a.errs)
	o, f := &a.o, root.PersistentFlags()
	f.StringSliceVar(&o.endpoints, "endpoints", []string{"127.0.0.1:2379"}, "gRPC endpoints")
	f.StringVar(&o.compose, "compose", "", "work on several clusters as one, as this file says (get, put, del, txn, watch, lease)")
	f.StringVarP(&o.form, "write-out", "w", "simple", "output form: fields, json, simple, table")
	f.BoolVar(&o.hex, "hex", false, "print byte strings and IDs as hexadecimal")
	f.BoolVar(&o.debug, "debug", false, "log what the client does")
	f.DurationVar(&o.dial, "dial-timeout", 2*time.Second, "dial timeout for client connections")
	f.DurationVar(&o.command, "command-timeout", 5*time.Second, "timeout for a command (excluding dial timeout)")
	f.DurationVar(&o.keepAlive, "keepalive-time", 2*time.Second, "keepalive time for client connections")
	f.DurationVar(&o.keepAliveLimit, "keepalive-timeout", 6*time.Second, "keepalive timeout for client connections")
	f.BoolVar(&o.plain, "insecure-transport", true, "disable TLS for endpoints without a scheme")
	f.BoolVar(&o.skipVerify, "insecure-skip-tls-verify", false, "don't verify the server's certificate (for tests only)")
	f.StringVar(&o.cert, "cert", "", "identify with this TLS certificate file")
	f.StringVar(&o.key, "key", "", "identify with this TLS key file")
	f.StringVar(&o.ca, "cacert", "", "verify servers with this CA bundle")
	f.StringVar(&o.user, "user", "", "username[:password]")
	f.StringVar(&o.password, "password", "", "password, if --user has none")
	f.StringVar(&o.client, "client-id", "", "who asks, for extensions (stoa only)")
	f.StringVar(&o.lease, "lease", "", "lease ID (in hexadecimal) that extensions can tie keys to (stoa only)")
	root.AddCommand(a.putCommand(), a.getCommand(), a.delCommand(), a.txnCommand(), a.watchCommand(), a.leaseCommand(),
		a.endpointCommand(), a.memberCommand(), a.partitionCommand(), a.extensionCommand(), a.benchCommand(), a.versionCommand())
	return root
}

// fromEnvironment gives flags the values of STOACTL_NAME, or else ETCDCTL_NAME.
// The command line is read later, so it wins.
func fromEnvironment(f *pflag.FlagSet, environ []string) error {
	values := map[string]string{}
	for _, kv := range environ {
		name, v, _ := strings.Cut(kv, "=")
		values[name] = v
	}
	var failed error
	f.VisitAll(func(flag *pflag.Flag) {
		suffix := strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		for _, name := range []string{"STOACTL_" + suffix, "ETCDCTL_" + suffix} {
			if v := values[name]; v != "" {
				if err := setDefault(flag.Value, v); err != nil {
					failed = badArgs("invalid value %q for environment variable %s: %w", v, name, err)
				}
				return
			}
		}
	})
	return failed
}

// setDefault leaves a list such that the command line replaces it instead of
// adding to it.
func setDefault(v pflag.Value, s string) error {
	if l, ok := v.(pflag.SliceValue); ok {
		return l.Replace(strings.Split(s, ","))
	}
	return v.Set(s)
}

func (a *app) logger() *zap.Logger {
	if !a.o.debug {
		return zap.NewNop()
	}
	lg, _ := zap.NewDevelopment()
	return lg
}

// connect opens a client for the given endpoints; none means --endpoints.
func (a *app) connect(endpoints ...string) (*clientv3.Client, error) {
	if len(endpoints) == 0 {
		endpoints = a.o.endpoints
	}
	if a.o.compose != "" {
		return nil, badArgs("--compose is for get, put, del, txn, watch and lease")
	}
	lg := a.logger()
	spec := &clientv3.ConfigSpec{
		Endpoints: endpoints, DialTimeout: a.o.dial,
		KeepAliveTime: a.o.keepAlive, KeepAliveTimeout: a.o.keepAliveLimit,
		Secure: &clientv3.SecureConfig{
			Cert: a.o.cert, Key: a.o.key, Cacert: a.o.ca,
			InsecureTransport: a.o.plain, InsecureSkipVerify: a.o.skipVerify,
		},
	}
	if a.o.user != "" {
		name, password, ok := strings.Cut(a.o.user, ":")
		if !ok {
			password = a.o.password
		}
		spec.Auth = &clientv3.AuthConfig{Username: name, Password: password}
	}
	cfg, err := clientv3.NewClientConfig(spec, lg)
	if err != nil {
		return nil, badArgs("%w", err)
	}
	cfg.Logger = lg
	if cfg.DialOptions, err = a.callerOptions(); err != nil {
		return nil, err
	}
	c, err := clientv3.New(*cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", strings.Join(endpoints, ","), err)
	}
	return c, nil
}

// withClient runs f with a connection and the time that a command may take.
func (a *app) withClient(f func(context.Context, *clientv3.Client) error) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), a.o.command)
	defer cancel()
	return f(ctx, c)
}
