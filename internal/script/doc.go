// Package script verifies, compiles and runs extensions: programs in a subset of
// Lua that clients register and that every replica runs inside its apply loop.
//
// A source comes in through [Compile], which parses it (gopher-lua's parser),
// verifies the syntax tree against a white list and compiles it to Go closures.
// [Program.Load] runs the file once; the [Module] holds its result. A request
// comes in through [Module.Call] and goes out to the caller's host functions,
// each of which gets the [Call]. Nothing of gopher-lua's VM or library runs.
//
// # The language
//
// Values are nil, booleans, 64-bit integers, byte strings, tables and functions.
// Integers are exact: an overflow is an error, / rounds down, % has the
// divisor's sign. Statements are local, local function, assignment, calls, if,
// while, repeat, numeric for, for over pairs(t) and ipairs(t), do, break and
// return. A function returns one value, nil if it has no return. Keys of tables
// are strings, integers and booleans; pairs visits 1..#t and then the other keys
// in the order of insertion, those that are there when it starts and still are
// when their turn comes. s:sub(1, 2) is string.sub(s, 1, 2), for strings only.
// Outside of functions a file has locals, assignments to them, and one return.
//
// Builtins: type tostring tonumber error assert; string.len sub byte char upper
// lower rep find split startswith endswith format; table.insert remove concat
// sort; math.min max abs. find looks for plain text and gives where it begins;
// split(s, separator) gives a table; format knows %d %s %x %X %%.
//
// # Invariants
//
//  1. (I6) A run is a function of source, arguments, limits and the results of host
//     functions: value, error (text and place) and usage are the same on
//     every replica. There are no addresses, clocks, random numbers, floats or Go
//     maps' order in any of it, nor the capacity that Go's append chose, nor data
//     that another call has left in a pool.
//  2. Every step, byte and call is charged before it happens. A run never uses
//     more than its [Limits], and no construct of the language catches the
//     error of a limit; a host function that drops it doesn't either.
//  3. Nothing is kept between calls: objects created while the file was loaded, the
//     cells of variables too, are read-only afterwards, and a function that a
//     call has created can't be called after it has ended. So one Module may be used
//     by any number of goroutines at once.
//  4. The Go stack is bounded: nesting in the source, times the depth of calls.
//     No code traverses a script's values by recursion.
//  5. No source and no script makes this package panic outward. A panic in a host
//     function or in here comes out as an [Error] with a fixed text, and with the
//     panic's value for the log alone.
//  6. The verifier refuses all nodes that it doesn't know. It has a case for each node
//     that is allowed, never a list of those that aren't.
//
// Places in errors are lines and columns (in bytes, from 1): where a statement,
// name or literal begins, the operator of an operation, the key of an index, the
// name of a call's function. gopher-lua's tree has lines only; columns come from
// reading its tokens alongside.
//
// [Version] must change with anything that changes a result or a usage.
//
// The package must not import anything that has a clock, a network, a file or a
// random source, and of gopher-lua only parse and ast. It imports nothing of
// stoa. DESIGN.md describes the implementation and rejected alternatives.
package script
