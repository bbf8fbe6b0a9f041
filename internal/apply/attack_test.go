package apply

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// attack is a hostile client: it registers sources, sets what it can set, and asks.
// Whatever comes of it, the machine goes on, in time, without growing, and a twin
// that is built anew from the keys between any two requests stays equal to it.
type attack struct {
	name string
	// sources are registered as a, b, c, …; refused says why the last of them isn't.
	sources []string
	refused string
	// asks are requests as in stories; the last of them fails with want, or ends
	// well if want is empty.
	asks []string
	want string
}

func one(source string) []string { return []string{source} }

// body is an attack by the handler of a put.
func body(name, body, want string) attack {
	return attack{name: name, sources: one(handler(body)), asks: []string{"put /x/go 1", "put /x/go 2"}, want: want}
}

// refused is an attack that doesn't come as far as that.
func refused(name, source, why string) attack {
	return attack{name: name, sources: one(source), refused: why}
}

// subscribed is a source with these subscriptions and scope.
func subscribed(scope, operations string) string {
	return "return { scope = { " + scope + " }, operations = { " + operations + " }, put = function(r) return 1 end }"
}

const megabyte = `local s = ("x"):rep(1000000) `

func attacks() []attack {
	var all []attack
	for _, some := range [][]attack{loops, memory, reach, writes, storms, answers, remains, files(), names, settings} {
		all = append(all, some...)
	}
	return all
}

var loops = []attack{
	body("while", `while true do end`, "more than 100000 steps"),
	body("repeat", `repeat until false`, "more than 100000 steps"),
	body("for", `for i = 1, 9223372036854775807 do end`, "more than 100000 steps"),
	body("nested for", strings.Repeat("for i = 1, 1000 do ", 20)+strings.Repeat("end ", 20), "more than 100000 steps"),
	body("pairs for ever", `local t = { a = 1 } while true do for k in pairs(t) do end end`, "more than 100000 steps"),
	body("reads for ever", `while true do get("/x/a") end`, "more than 2000 operations"),
	body("writes of one key for ever", `while true do put("/x/a", "1") end`, "more than 2000 operations"),
	body("counting for ever", `while true do count("/x/") end`, "more than 2000 operations"),
	body("scanning for ever", `while true do range("/x/") end`, "more than"),
	body("asking for the revision for ever", `while true do revision() client() end`, "more than 100000 steps"),
	body("recursion", `local function f(n) return f(n + 1) + 1 end return f(1)`, "nested more than 64"),
	body("mutual recursion through a table", `local t = {} t.a = function() return t.b() end t.b = function() return t.a() end return t.a()`, "nested more than 64"),
	body("recursion that fans out", `local function f(n) if n == 0 then return 1 end return f(n - 1) + f(n - 1) end return f(50)`, "more than 100000 steps"),
	body("sorting with a comparison that reads", `local t = {} for i = 1, 500 do t[i] = i end table.sort(t, function(a, b) return get("/x/" .. a) == nil end)`, "more than 2000 operations"),
	{name: "a loop while the file is loaded", sources: one(`while true do end return {}`), refused: "outside of functions"},
	{name: "a loop in a function that is called while the file is loaded", sources: one(`local function f() while true do end end return { scope = { f() } }`), refused: "more than 100000 steps"},
	{name: "recursion while the file is loaded", sources: one(`local function f() return f() end return { scope = { f() } }`), refused: "nested more than 64"},
}

var memory = []attack{
	body("doubling", `local s = "x" while true do s = s .. s end`, "more than"),
	body("rep", `return ("x"):rep(1000000000)`, "bytes of memory"),
	body("tables", `local t = {} while true do t = { t } end`, "more than"),
	body("a huge list", `local t, i = {}, 0 while true do i = i + 1 t[i] = i end`, "more than"),
	body("closures", `local t, i = {}, 0 while true do i = i + 1 t[i] = function() return t end end`, "more than"),
	body("concat", `local t = {} for i = 1, 1000 do t[i] = "xxxxxxxxxx" end local s = "" while true do s = s .. table.concat(t, s) end`, "more than"),
	body("stats", `for i = 1, 2000 do put("/x/" .. i, "1") end`, "more than 1000 keys"),
	body("ranges of what is written", `for i = 1, 900 do put("/x/" .. i, "1") end while true do range("/x/") end`, "more than"),
	body("a megabyte as key, again and again", megabyte+`while true do get("/x/" .. s) end`, "more than"),
	body("one key of a megabyte, again and again", megabyte+`local k = "/x/" .. s while true do get(k) end`, "more than 100000 steps"),
	body("one value of a megabyte, never written", megabyte+`create("/x/a", "1") while true do create("/x/a", s) end`, "more than 100000 steps"),
	body("one value of a megabyte, compared", megabyte+`create("/x/a", "1") while true do cas("/x/a", s, s) end`, "more than 100000 steps"),
	body("a prefix of a megabyte", megabyte+`while true do count("/x/" .. s) end`, "more than"),
	{name: "memory while the file is loaded", sources: one(`local function f() local s = "x" while true do s = s .. s end end return { scope = { f() } }`), refused: "more than"},
}

var reach = []attack{
	body("reading outside", `return get("/secret")`, "outside the extension's scope"),
	body("writing outside", `put("/x/a", "1") put("/secret", "1")`, "outside the extension's scope"),
	body("deleting outside", `delete("/secret")`, "outside the extension's scope"),
	body("its own source", `put("/em/a", "return {}")`, "outside the extension's scope"),
	body("its own owner", `return get("/em/a/owner")`, "outside the extension's scope"),
	body("the limits", `put("/em/.limits", "{}")`, "outside the extension's scope"),
	body("a prefix that is wider", `return #range("/x")`, "outside the extension's scope"),
	body("a prefix that only begins like it", `return count("/x/\255\255\255") + count("/xx")`, "outside the extension's scope"),
	body("every key", `return #range("")`, "empty key"),
	body("a negative limit", `return #range("/x/", -1)`, "isn't negative"),
	body("a limit beyond everything", `return #range("/x/", 9223372036854775807)`, ""),
	body("somebody's lease", `put("/x/a", "1", 4611686018427387904)`, "does not exist"),
	body("a negative lease", `put("/x/a", "1", -1)`, "isn't negative"),
	body("blocking a put", `block("/x/a")`, "block can only be called"),
	body("suppressing a put", `suppress()`, "suppress can only be called"),
	body("notices outside", `notify("/secret", "1")`, "outside the extension's scope"),
	refused("no arguments", handler(`return get()`), "wants 1 argument"),
	body("a table for a key", `return get({})`, "must be a key"),
	body("a function for a value", `put("/x/a", get)`, "must be a string or an integer"),
}

var writes = []attack{
	body("too many keys", `for i = 1, 5000 do put("/x/" .. i, "") end`, "more than 1000 keys written"),
	body("too many bytes", `local s = ("x"):rep(100000) for i = 1, 50 do put("/x/" .. i, s) end`, "more than 1048576 bytes written"),
	body("too many bytes into one key", `local s = ("x"):rep(100000) for i = 1, 50 do put("/x/a", s) end`, "more than 1048576 bytes written"),
	body("too many bytes of keys", `local s = ("k"):rep(100000) for i = 1, 50 do delete("/x/" .. s .. i) put("/x/" .. s .. i, "") end`, "more than"),
	body("too many notices", `for i = 1, 5000 do notify("/x/n", "1") end`, "more than 2000 operations"),
	body("too large a notice", `notify("/x/n", ("x"):rep(1100000))`, "more than 1048576 bytes written"),
	body("an error in the midst", `for i = 1, 500 do put("/x/" .. i, "1") end error("half")`, "half"),
	body("an error in the midst of deletions", `put("/x/keep", "1") delete("/x/keep") put("/x/keep", "2") delete("/x/a") local t = nil return t.x`, "nil"),
	body("a limit in the midst", `put("/x/a", "1") put("/x/b", "1") while true do end`, "more than 100000 steps"),
	body("writing and deleting in turn", `for i = 1, 900 do put("/x/a", i) delete("/x/a") end return count("/x/")`, ""),
}

// storms: extensions that set each other off.
var storms = []attack{
	{name: "one that answers itself", sources: one(reaction(`put(e.key, (e.value or "") .. "x")`)), asks: []string{"put /x/a 1"}, want: "more than 64 events"},
	{name: "one that makes two of one", sources: one(reaction(`put(e.key .. "0", "1") put(e.key .. "1", "1")`)), asks: []string{"put /x/a 1"}, want: "more than 500000 steps"},
	{name: "one that deletes and creates", sources: one(reaction(`if e.type == "deleted" then put(e.key, "1") else delete(e.key) end`)), asks: []string{"put /x/a 1"}, want: "more than 64 events"},
	{name: "one that writes all that it may", sources: one(reaction(`for i = 1, 900 do put("/x/" .. i, revision() .. e.key:sub(1, 3)) end`)), asks: []string{"put /x/a 1"}, want: "more than 500000 steps"},
	{name: "two", sources: []string{reaction(`put("/x/b", "1")`), reaction(`put("/x/a", "1")`)}, asks: []string{"put /x/a 1", "del /x/ /x0"}},
	{
		name: "three, again and again, until all are disabled",
		sources: []string{
			reaction(`if e.key == "/x/a" then put("/x/b", "1") end`), reaction(`if e.key == "/x/b" then put("/x/c", "1") end`),
			reaction(`if e.key == "/x/c" then put("/x/a", "1") end`),
		},
		asks: strings.Split(strings.Repeat("put /x/a 1,", 40)+"put /x/b 1", ","),
	},
	{name: "loops in each event", sources: []string{reaction(`while true do end`), reaction(`local s = "x" while true do s = s .. s end`)}, asks: strings.Split(strings.Repeat("put /x/a 1,", 30)+"put /x/b 1", ",")},
	{name: "a range of deletions, each told", sources: one(reaction(`put("/x/n", "1")`)), asks: []string{"put /x/1 1", "put /x/2 1", "put /x/3 1", "del /x/ /x0", "del /x/ /x0"}},
	{name: "errors in each event", sources: []string{reaction(`put("/x/n", "1") error(e.key)`), reaction(`return nil .. "x"`)}, asks: strings.Split(strings.Repeat("put /x/a 1,", 30)+"put /x/b 1", ",")},
	{name: "hiding everything", sources: one(reaction(`suppress() notify(e.key, "nothing")`)), asks: []string{"put /x/a 1", "del /x/a"}},
}

// answers: what a handler returns.
var answers = []attack{
	body("a cycle", `local t = {} t.value = t return t`, "can't be a value"),
	body("a list of itself", `local t = {} t[1] = t t[2] = t return t`, "known are"),
	body("a deep table", `local t = { "x" } for i = 1, 5000 do t = { t } end return t`, "known are"),
	body("a function", `return function() end`, "can't be a value"),
	body("a host function", `return get`, "can't be a value"),
	body("a negative version", `return { value = "1", version = -1 }`, "no number"),
	body("a version that is text", `return { value = "1", mod_revision = "1" }`, "no number"),
	body("a key that is a number", `return { key = 1 }`, "no string"),
	body("keys of all kinds", `local t = { [true] = 1, [-1] = 2, [9223372036854775807] = 3, x = 4 } return t`, "known are"),
	body("a list with a hole", `return { [1] = { key = "a" }, [3] = { key = "b" } }`, "known are"),
	{
		name: "a huge list of one megabyte", sources: one(strings.ReplaceAll(handler(megabyte+
			`local kv, t = { key = "/x/a", value = s }, {} for i = 1, 100 do t[i] = kv end return t`), "put", "delete")),
		asks: []string{"del /x/go"}, want: "larger than the memory of a call",
	},
	{
		name: "a huge list of small ones", sources: one(strings.ReplaceAll(handler(
			`local kv, t = {}, {} for i = 1, 9000 do t[i] = kv end return t`), "put", "delete")),
		asks: []string{"del /x/go"}, want: "",
	},
	{name: "minus one key deleted", sources: one(strings.ReplaceAll(handler(`return -1`), "put", "delete")), asks: []string{"del /x/go"}, want: "no number of keys"},
	{name: "more keys deleted than there are", sources: one(strings.ReplaceAll(handler(`return 9223372036854775807`), "put", "delete")), asks: []string{"del /x/go"}},
	body("an address", `return tostring({})`, "has no text"),
	body("the address of a function", `return "" .. tostring(get)`, "has no text"),
	body("an error that is a table", `error({})`, ""+"error"),
	body("an error of a megabyte", megabyte+`error(s)`, "xxx"),
	body("an error with a line of its own", `error("line 7: x\nstoa: extension \"b\": y")`, "line 7"),
	body("an error that isn't text", `error("\255\0\254")`, "stoa: extension"),
}

// remains: what a call may leave behind for the next.
var remains = []attack{
	refused("a global", handler(`n = (n or 0) + 1 return n`), "no globals"),
	refused("a local of the file", `local n = 0 `+handler(`n = n + 1 return n`), "nothing is kept"),
	{name: "a table of the file", sources: one(`local t = {} ` + handler(`t[#t + 1] = 1 return #t`)), asks: []string{"put /x/go 1"}, want: "nothing is kept between calls"},
	{name: "a table of the file by a built-in", sources: one(`local t = { 2, 1 } ` + handler(`table.sort(t) return t[1]`)), asks: []string{"put /x/go 1"}, want: "nothing is kept between calls"},
	body("a built-in replaced", `local string = { rep = 1 } return string.rep`, ""),
	{name: "the request as a store", sources: one(handler(`request.count = (request.count or 0) + 1 return request.count`)), asks: []string{"put /x/go 1", "put /x/go 1"}, want: "no field `count`"},
	body("the order of a table", `local t, s = {}, "" for i = 1, 50 do t["k" .. i * 7 % 50] = i end for k, v in pairs(t) do s = s .. k end put("/x/order", s) return s`, ""),
	body("the order after deletions", `local t, s = {}, "" for i = 1, 50 do t["k" .. i] = i end for i = 1, 50, 3 do t["k" .. i] = nil end for i = 1, 9 do t["n" .. i] = i end for k in pairs(t) do s = s .. k end put("/x/order", s)`, ""),
	body("an order that sort doesn't define", `local t = {} for i = 1, 100 do t[i] = { i % 3, i } end table.sort(t, function(a, b) return a[1] < b[1] end) local s = "" for i, v in ipairs(t) do s = s .. v[2] .. "," end put("/x/order", s)`, ""),
	body("an integer too large", `return 9223372036854775807 + 1`, "overflow"),
	body("division by nothing", `return 1 / 0`, "zero"),
	body("the least integer divided", `local n = -9223372036854775807 - 1 return n / -1`, "overflow"),
}

func files() []attack {
	nested := func(open, in, close string) string {
		return strings.Repeat(open, 10_000) + in + strings.Repeat(close, 10_000)
	}
	pattern := strings.Repeat("y", 1024)
	return []attack{
		refused("10 MB", handler("--"+strings.Repeat("x", 10<<20)), "the source has"),
		refused("nesting of blocks", handler(nested("do ", "", "end ")), "the source has"),
		refused("nesting of blocks in less", handler(strings.Repeat("do ", 5_000)+strings.Repeat("end ", 5_000)), "nest"),
		refused("nesting of brackets", handler("return "+nested("(", "1", ")")), "nest"),
		refused("nesting of tables", handler("return "+nested("{", "", "}")), "nest"),
		refused("nesting of functions", handler(nested("local f = function() ", "", "end ")), "the source has"),
		refused("nesting of operators", handler("return "+strings.Repeat("- ", 20_000)+"1"), "operators in one expression"),
		refused("a chain of concatenations", handler("return "+strings.Repeat("'a'..", 5_000)+"'a'"), "operators in one expression"),
		refused("too many nodes", handler(strings.Repeat("get'' ", 10_000)), "nodes"),
		refused("no Lua", "\x00\xff", "line 1"),
		refused("nothing", "", "line 1"),
		refused("not a table", "return 1", "must end with"),
		refused("bytecode", "\x1bLua", "line 1"),
		refused("coroutines", handler(`coroutine.yield()`), "there is no"),
		refused("metatables", handler(`setmetatable({}, {})`), "there is no"),
		refused("pcall", handler(`pcall(get)`), "there is no"),
		refused("load", handler(`load("x")()`), "there is no"),
		refused("the world", handler(`os.execute("x")`), "there is no"),
		refused("the time", handler(`return os.time()`), "there is no"),
		refused("chance", handler(`return math.random()`), "math"),
		refused("goto", handler(`::a:: goto a`), "label"),
		refused("varargs", handler(`local function f(...) end`), "variable arguments"),
		refused("floats", handler(`return 1.5`), "64-bit integers"),
		refused("the empty pattern", subscribed(`"/x/"`, `{ op = "put", key = "" }`), "too wide"),
		refused("the root", subscribed(`"/"`, `{ op = "put", prefix = "/" }`), "too wide"),
		refused("a pattern of the manager", subscribed(`"/x"`, `{ op = "put", prefix = "/em/" }`), "extension manager's"),
		refused("a key of the manager", subscribed(`"/em/.limits"`, `{ op = "put", key = "/x" }`), "extension manager's"),
		refused("a pattern that is long", subscribed(`"/x"`, `{ op = "put", key = "/`+pattern+`" }`), "too long"),
		refused("too many subscriptions", subscribed(`"/x"`, strings.Repeat(`{ op = "put", key = "/x" }, `, 101)), "101 elements"),
		refused("too many scopes", subscribed(strings.Repeat(`"/x", `, 101), `{ op = "put", key = "/x" }`), "101 elements"),
		refused("a scope that is a table of tables", subscribed(`{ { } }`, `{ op = "put", key = "/x" }`), "scope must be a list"),
		refused("an operation that doesn't exist", subscribed(`"/x"`, `{ op = "compact", key = "/x" }`), "not known"),
		refused("a handler that is a host function", `return { scope = { "/x/" }, operations = { { op = "put", prefix = "/x/" } }, put = get }`, "function of this file"),
		{name: "patterns of all bytes", sources: one(subscribed(`"/x/\0\255/"`, `{ op = "put", prefix = "\0/" }, { op = "put", key = "/\255" }`)), asks: []string{`put \0/x 1`}},
		{name: "overlapping subscriptions", sources: one(subscribed(`"/x/", "/x/x/", "/x/x/x"`, strings.Repeat(`{ op = "put", prefix = "/x/" }, { op = "put", prefix = "/x/x/" }, `, 40))), asks: []string{"put /x/x/x 1"}},
	}
}

var names = []attack{
	{name: "no name", asks: []string{"put /em/ x"}, want: "can't be put"},
	{name: "a path", asks: []string{"put /em/../x x"}, want: "can't be put"},
	{name: "a dot", asks: []string{"put /em/.x x"}, want: "can't be put"},
	{name: "a name that isn't text", asks: []string{"put /em/\xff\xfe x"}, want: "can't be put"},
	{name: "a name of 100 KB", asks: []string{"put /em/" + strings.Repeat("x", 100_000) + " x"}, want: "stoa: /em/xxx"},
	{name: "a client of 100 KB", sources: one(handler("return 1")), asks: []string{"put /em/a/ack/" + strings.Repeat("x", 100_000)}, want: "stoa: /em/a/ack/xxx"},
	{name: "another's acknowledgement", sources: one(handler("return 1")), asks: []string{"put /em/a/ack/somebody"}, want: "can't be put"},
	{name: "the owner", sources: one(handler("return 1")), asks: []string{"put /em/a/owner x"}, want: "can't be put"},
	{name: "deleting the owner", sources: one(handler("return 1")), asks: []string{"del /em/a/owner"}, want: "can't be deleted"},
	{name: "deleting all but the source", sources: one(handler("return 1")), asks: []string{"del /em/a/ /em/a0"}, want: "can't be deleted"},
	{name: "in a transaction", asks: []string{"txn; then put /em/a x"}, want: "can't be changed in a transaction"},
	{name: "everything at once in a transaction", sources: one(handler("return 1")), asks: []string{"txn; then put /y 1; then del / \\0"}},
	{name: "a key of slashes", sources: one(handler("return 1")), asks: []string{"put /x/" + strings.Repeat("/", 1<<20) + " 1"}},
}

var settings = []attack{
	{name: "no limits", asks: []string{"put /em/.limits"}, want: "give a JSON object"},
	{name: "limits that are deep", asks: []string{"put /em/.limits " + strings.Repeat("[", 100_000)}, want: "give a JSON object"},
	{name: "limits that are long", asks: []string{"put /em/.limits {\"" + strings.Repeat("x", 1<<20) + "\"}"}, want: "give a JSON object"},
	{name: "limits that are no numbers", asks: []string{`put /em/.limits {"steps"=NaN}`}, want: "give a JSON object"},
}

func TestAttacks(t *testing.T) {
	list := attacks()
	require.GreaterOrEqual(t, len(list), 60)
	t.Logf("%d attacks", len(list))
	defer func() { t.Logf("the slowest took %v", slowest) }()
	for _, a := range list {
		for _, partitions := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/P=%d", a.name, partitions), func(t *testing.T) { a.run(t, newTwins(t, partitions)) })
		}
	}
}

func (a *attack) run(t *testing.T, w *twins) {
	for i, text := range a.sources {
		last := i == len(a.sources)-1
		r := a.ask(t, w, "put /em/"+string(rune('a'+i)), sourcePut(string(rune('a'+i)), text))
		if a.refused == "" {
			require.NoError(t, r.Err)
		} else if last {
			require.ErrorContains(t, r.Err, a.refused)
			require.Nil(t, w.first.Extensions().Get("a"))
			require.Zero(t, w.first.Stores[0].Keys())
		}
	}
	for i, line := range a.asks {
		r := a.ask(t, w, line, requestOf(line))
		switch {
		case i < len(a.asks)-1:
		case a.want == "":
			require.NoError(t, r.Err)
		default:
			require.ErrorContains(t, r.Err, a.want)
		}
	}
	// Others go on as if nothing had been.
	r := a.ask(t, w, "others", &pb.PutRequest{Key: []byte("/others"), Value: []byte("1")})
	require.NoError(t, r.Err)
}

// A request may leave so much at the default limits: what a call may use and what it
// may write, a few times over for what is copied on the way.
const (
	mayAllocate = 250 << 20
	mayKeep     = 64 << 20
)

// slowest is the attack that took longest.
var slowest time.Duration

func (a *attack) ask(t *testing.T, w *twins, what string, req proto.Message) Result {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := used(t)
	r, logged := w.ask(who{}, req)
	took := used(t) - began
	runtime.ReadMemStats(&after)
	what = what[:min(len(what), 100)]
	require.True(t, logged, what)
	slowest = max(slowest, took)
	require.Less(t, took, mayTake, what)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(mayAllocate), what)
	if after.HeapAlloc > before.HeapAlloc+mayKeep {
		runtime.GC()
		runtime.ReadMemStats(&after)
		require.Less(t, after.HeapAlloc, before.HeapAlloc+mayKeep, what)
	}
	if r.Err != nil {
		require.LessOrEqual(t, len(r.Err.Error()), 2100, "the text of an error")
		require.NotContains(t, r.Err.Error(), "0xc0")
		require.NotContains(t, r.Err.Error(), "runtime error")
		require.NotContains(t, r.Err.Error(), "internal error")
	}
	w.requireEqual()
	w.reload()
	w.requireEqual()
	return r
}
