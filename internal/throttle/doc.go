// Package throttle keeps requests that are expensive to apply from filling the log.
//
// What extensions do for a request takes up to milliseconds in apply, within their limits,
// and any number of clients may send such requests at once: all other writes of the
// partition would wait behind them. A [Lane] lets only a few of them into the log at a time,
// in turns between the extensions that they concern, and lets the expensive ones take no
// more than a third of a core over time, those that other servers admit included, and not in step
// with theirs. How expensive a request will be is foretold from the [History] of the extension,
// which apply writes. Cheap requests pass.
//
// Nothing of this reaches the log or the state. The package imports nothing of stoa; time
// is injected.
package throttle
