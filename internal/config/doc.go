// Package config turns flags, environment and a YAML file into validated
// settings.
//
// Its one promise is that a command line written for etcd 3.7 starts stoa: the
// names, forms, defaults, precedence and conflicts are etcd's. A name is
// declared once (declare.go, accepted.go) and can then be given
//
//   - as a flag, --name v, --name=v, -name v; the last one counts;
//   - in the environment, as STOA_NAME or ETCD_NAME;
//   - in the file that --config-file names, under etcd's key.
//
// Invariants:
//
//  1. With a file, flags and environment are ignored, as in etcd. Without one,
//     a variable for a setting that is also given as a flag is an error, as in
//     etcd; STOA_X beats ETCD_X.
//  2. Every error names the setting that it is about.
//  3. A setting that stoa doesn't use is parsed as strictly as any other. One
//     that requests a missing feature gives a warning that names it; if it must
//     not be ignored (discovery), an error.
//  4. A *Config that Parse returned without an error is valid: its users check
//     nothing again.
//  5. Nothing here opens a port, makes a directory or logs; what is to be
//     logged is handed out as Notices, because the logger is made from the
//     settings.
//
// The package knows nothing of the server: it must not import any other
// package of stoa. Parse (config.go) is the way in; cmd/stoa is the user.
package config
