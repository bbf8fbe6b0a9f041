package extension

import (
	"bytes"
	"fmt"
	"strings"
)

// Root is where the extension manager's keys lie, End the first key behind it.
const (
	Root = "/em/"
	End  = "/em0"
)

// LimitsKey holds the cluster's limits, as JSON; see [Limits].
const LimitsKey = Root + ".limits"

// Role is the meaning of a key under [Root].
type Role int

// The keys of the extension named NAME, and those of the manager itself.
const (
	Outside   Role = iota // not under Root
	Source                // /em/NAME: the source; putting it registers, deleting it removes
	Owner                 // /em/NAME/owner: the client that registered it
	Ack                   // /em/NAME/ack: acknowledges for the client that puts it
	AckOf                 // /em/NAME/ack/CLIENT: that acknowledgement; "" or "once"
	Status                // /em/NAME/state: "enabled", "failing N: …" or "disabled: …"
	Registrar             // /em/NAME/registrar: the user who registered it, as whom its event handler runs
	Spoken                // /em/NAME/language: the version of the language that the source was registered for
	Settings              // LimitsKey
	Unknown               // nothing that may be put
)

// Once is the value of an acknowledgement that its first use consumes.
const Once = "once"

// maxName is the longest name of an extension, in bytes.
const maxName = 64

// Parse returns the role of a key. The name is that of the extension; client is
// that of an AckOf.
func Parse(key []byte) (role Role, name, client string) {
	if !bytes.HasPrefix(key, []byte(Root)) {
		return Outside, "", ""
	}
	if string(key) == LimitsKey {
		return Settings, "", ""
	}
	name, rest, deeper := strings.Cut(string(key[len(Root):]), "/")
	if CheckName(name) != nil {
		return Unknown, "", ""
	}
	switch {
	case !deeper:
		return Source, name, ""
	case rest == "owner":
		return Owner, name, ""
	case rest == "ack":
		return Ack, name, ""
	case strings.HasPrefix(rest, "ack/") && len(rest) > len("ack/"):
		return AckOf, name, rest[len("ack/"):]
	case rest == "state":
		return Status, name, ""
	case rest == "registrar":
		return Registrar, name, ""
	case rest == "language":
		return Spoken, name, ""
	}
	return Unknown, name, ""
}

// CheckName refuses invalid names. A name has letters, digits, '_', '-' and '.', and
// doesn't begin with a dot.
func CheckName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("stoa: a name of an extension has 1 to %d bytes", maxName)
	}
	for i, c := range []byte(name) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && c != '_' && c != '-' && (c != '.' || i == 0) {
			return fmt.Errorf("stoa: extension name %q: only letters, digits, '_', '-' and '.' (not at the beginning) are allowed", name)
		}
	}
	return nil
}

// The keys of an extension.

func SourceKey(name string) []byte { return []byte(Root + name) }
func OwnerKey(name string) []byte  { return []byte(Root + name + "/owner") }
func StateKey(name string) []byte  { return []byte(Root + name + "/state") }
func RegistrarKey(name string) []byte {
	return []byte(Root + name + "/registrar")
}
func LanguageKey(name string) []byte {
	return []byte(Root + name + "/language")
}
func AckKey(name, client string) []byte {
	return []byte(Root + name + "/ack/" + client)
}

// Home is the prefix of all keys of an extension but its source. They lie in one
// partition, that in which its calls are decided.
func Home(name string) []byte { return []byte(Root + name + "/") }

// Touches tells whether a range holds any key that the manager handles. The range is
// written as in etcd's requests.
func Touches(key, end []byte) bool {
	switch {
	case len(end) == 0:
		return bytes.HasPrefix(key, []byte(Root))
	case string(key) >= End:
		return false
	}
	return len(end) == 1 && end[0] == 0 || string(end) > Root
}
