// Package ui looks at the page of a running cluster with a browser without a screen (Chromium,
// driven over its DevTools protocol):
//
//   - every view shows what is there, and follows what happens;
//   - all of it can be reached and used with the keyboard;
//   - axe-core finds no violation of WCAG 2.2 A and AA, in light and dark;
//   - the browser asks no other host, reports no violation of the Content-Security-Policy and no
//     error of a script, also with keys and values that look like HTML;
//   - a user who logs in sees and does what the user's roles allow;
//   - few small requests show the first page of very many keys.
//
// It is a module of its own, so that stoa's doesn't depend on the driver of the browser.
//
//	make test-ui
package ui
