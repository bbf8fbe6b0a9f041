// Stoactl is the command-line client of stoa (and of etcd).
//
// Where etcdctl has a command, stoactl's has its flags, its output forms and its
// exit codes. There is one file per subcommand; what they share is here (global
// flags and the connection), in show.go (output forms) and in ops.go (requests
// that stand alone as well as in a txn).
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/etcdctl/v3/ctlv3/command"
)

func main() {
	a := &app{in: bufio.NewReader(os.Stdin), out: os.Stdout, errs: os.Stderr}
	os.Exit(a.run(os.Args[1:], os.Environ()))
}

// app is one call of stoactl.
type app struct {
	in        *bufio.Reader
	out, errs io.Writer
	environ   map[string]string
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
	maxSend, maxReceive       int
	user, password, token     string
	discovery, discoveryName  string
	insecureDiscovery         bool
	client, lease             string // see extension_caller.go
	compose                   string // see compose.go
}

func (a *app) run(args, environ []string) int {
	a.environ = map[string]string{}
	for _, kv := range environ {
		name, v, _ := strings.Cut(kv, "=")
		a.environ[name] = v
	}
	root := a.root()
	root.SetArgs(args)
	err := a.fromEnvironment(root.PersistentFlags())
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
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return errors.Join(a.checkGlobals(cmd), a.discover()) },
	}
	root.SetOut(a.out)
	root.SetErr(a.errs)
	o, f := &a.o, root.PersistentFlags()
	f.StringSliceVar(&o.endpoints, "endpoints", []string{"127.0.0.1:2379"}, "gRPC endpoints")
	f.StringVar(&o.compose, "compose", "", "work on several clusters as one, as this file says (get, put, del, txn, watch, lease)")
	f.StringVarP(&o.form, "write-out", "w", "simple", "output form: "+strings.Join(forms, ", "))
	f.BoolVar(&o.hex, "hex", false, "print byte strings and IDs as hexadecimal")
	f.BoolVar(&o.debug, "debug", false, "log what the client does")
	f.DurationVar(&o.dial, "dial-timeout", 2*time.Second, "dial timeout for client connections")
	f.DurationVar(&o.command, "command-timeout", 5*time.Second, "timeout for a command (excluding dial timeout)")
	f.DurationVar(&o.keepAlive, "keepalive-time", 2*time.Second, "keepalive time for client connections")
	f.DurationVar(&o.keepAliveLimit, "keepalive-timeout", 6*time.Second, "keepalive timeout for client connections")
	f.IntVar(&o.maxSend, "max-request-bytes", 0, "most bytes of a request (2 MiB if 0)")
	f.IntVar(&o.maxReceive, "max-recv-bytes", 0, "most bytes of an answer (no limit if 0)")
	f.BoolVar(&o.plain, "insecure-transport", true, "disable TLS for endpoints without a scheme")
	f.BoolVar(&o.skipVerify, "insecure-skip-tls-verify", false, "don't verify the server's certificate (for tests only)")
	f.StringVar(&o.cert, "cert", "", "identify with this TLS certificate file")
	f.StringVar(&o.key, "key", "", "identify with this TLS key file")
	f.StringVar(&o.ca, "cacert", "", "verify servers with this CA bundle")
	f.StringVar(&o.user, "user", "", "username[:password]")
	f.StringVar(&o.password, "password", "", "password, if --user has none")
	f.StringVar(&o.token, "auth-jwt-token", "", "JSON Web Token, in the place of --user and --password")
	f.StringVarP(&o.discovery, "discovery-srv", "d", "", "domain name to query for SRV records of the endpoints")
	f.StringVar(&o.discoveryName, "discovery-srv-name", "", "service name to query for them")
	f.BoolVar(&o.insecureDiscovery, "insecure-discovery", true, "accept endpoints without TLS from SRV records")
	f.StringVar(&o.client, "client-id", "", "the client's name, for extensions (stoa only)")
	f.StringVar(&o.lease, "lease", "", "lease ID (in hexadecimal) that extensions can tie keys to (stoa only)")
	root.AddCommand(a.putCommand(), a.getCommand(), a.delCommand(), a.txnCommand(), a.watchCommand(), a.leaseCommand(),
		a.endpointCommand(), a.memberCommand(), a.authCommand(), a.userCommand(), a.roleCommand(), a.quotaCommand(), a.partitionCommand(), a.topCommand(), a.snapshotCommand(), a.migrateCommand(), a.mirrorCommand(), a.commandsCommand(), a.extensionCommand(), a.benchCommand(), a.versionCommand())
	root.AddCommand(a.etcdctlCommands()...)
	root.AddCommand(a.mounted(command.NewOptionsCommand(root))...)
	cobra.EnablePrefixMatching = true // as etcdctl: "compact" is compaction
	root.InitDefaultCompletionCmd()
	a.completeFromCluster(root)
	refuseUnknown(root)
	return root
}

// checkGlobals refuses invalid global flags.
func (a *app) checkGlobals(cmd *cobra.Command) error {
	for name, v := range map[string]string{"cert": a.o.cert, "key": a.o.key, "cacert": a.o.ca} {
		if cmd.Root().PersistentFlags().Changed(name) && v == "" {
			return badArgs("empty string is passed to --%s option", name)
		}
	}
	return a.checkCompose(cmd)
}

// fromEnvironment gives flags the values of STOACTL_NAME, or else ETCDCTL_NAME.
// The command line is read later, so it wins.
func (a *app) fromEnvironment(f *pflag.FlagSet) error {
	var failed error
	f.VisitAll(func(flag *pflag.Flag) {
		name := strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if v := a.variable(name); v != "" {
			if err := setDefault(flag.Value, v); err != nil {
				failed = badArgs("invalid value %q for environment variable STOACTL_%s or ETCDCTL_%s: %w", v, name, name, err)
			}
		}
	})
	return failed
}

// limited reports whether a time is given that the command may take.
func (a *app) limited(cmd *cobra.Command) bool {
	return cmd.Flags().Changed("command-timeout") || a.variable("COMMAND_TIMEOUT") != ""
}

// variable is STOACTL_NAME of the environment, or else ETCDCTL_NAME.
func (a *app) variable(name string) string {
	if v := a.environ["STOACTL_"+name]; v != "" {
		return v
	}
	return a.environ["ETCDCTL_"+name]
}

// setDefault leaves a list such that the command line replaces it instead of
// adding to it.
func setDefault(v pflag.Value, s string) error {
	if l, ok := v.(pflag.SliceValue); ok {
		return l.Replace(strings.Split(s, ","))
	}
	return v.Set(s)
}
