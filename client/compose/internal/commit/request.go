package commit

// Request is a conditional transaction of one cluster: if all conditions hold, the operations
// of Then are executed, otherwise those of Else.
type Request struct {
	Step       Step
	Cluster    uint64 // its ID
	If         []Cond
	Then, Else []Op
}

// Step is the purpose of a request.
type Step string

// The steps of coordinators and recoveries.
const (
	Begin       Step = "begin"        // writes the record and locks home's keys
	Prepare     Step = "prepare"      // locks another cluster's keys
	Commit      Step = "commit"       // decides, and writes home's keys
	RollForward Step = "roll forward" // writes another cluster's keys and unlocks them
	Finish      Step = "finish"       // removes the record behind the last lock
	Confirm     Step = "confirm"      // removes the record of a transaction without changes, if it is pending still
	Abandon     Step = "abandon"      // removes a pending record
	Release     Step = "release"      // removes locks of a transaction that won't commit
	Look        Step = "look"         // reads the record
)

// Cond is a condition on one key.
type Cond struct {
	Key  string
	Test Test
	// Value is that of Is, Mod the revision of IsAt.
	Value []byte
	Mod   int64
}

// Test is what a condition says of its key.
type Test uint8

const (
	// Absent: the key doesn't exist.
	Absent Test = iota
	// Is: it has the value.
	Is
	// IsAt: its last change was at the revision.
	IsAt
)

// Op is an operation on one key.
type Op struct {
	Do    Verb
	Key   string
	Value []byte
	Lease int64 // of a put; 0: none
}

// Verb is the kind of an operation.
type Verb uint8

// The kinds of operations.
const (
	Get Verb = iota
	Put
	Delete
)

// Answer is the answer to a request.
type Answer struct {
	Succeeded bool // Then was executed
	// KVs are the keys that were read, in the order of the operations; nil for those that
	// don't exist.
	KVs []*KV
	// Revision is the cluster's, which the protocol doesn't use.
	Revision int64
	// Err, if there is no answer. Unless Refused is set, the request may have been executed,
	// or may be executed later.
	Err     error
	Refused bool
	// NoLease: it was refused because the lease of a put doesn't exist.
	NoLease bool
}

// KV is a key of a cluster with its value.
type KV struct {
	Key                  string
	Value                []byte
	Create, Mod, Version int64
	Lease                int64
}

func get(key string) Op               { return Op{Do: Get, Key: key} }
func put(key string, value []byte) Op { return Op{Do: Put, Key: key, Value: value} }
func del(key string) Op               { return Op{Do: Delete, Key: key} }
