// Package sheet is what the benchmark programs have in common when they read lists
// of numbers and write reports: tables in Markdown, times that read well, plots in
// files and the way to them.
//
// It measures nothing and knows no server.
package sheet
