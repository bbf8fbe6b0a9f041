// Package extensions holds the recipes that ship with stoa, each a Lua program that
// servers run (README.md shows how to use them with etcdctl): counter, queue, barrier,
// election, semaphore, ratelimit, rename, balancer and tuplespace.
//
// Every file says in its first lines what it is for, which keys it uses and how it is
// called. The first line of code names where its keys lie, so that a second queue, say,
// is the same file with another root ([SourceAt]), in a scope and hence a partition of
// its own.
//
// The package is data: it imports nothing of stoa, and client/recipes builds on it.
package extensions

import (
	"embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

//go:embed *.lua
var files embed.FS

// Names returns the names of all recipes, sorted.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // the files are part of the program
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = strings.TrimSuffix(e.Name(), ".lua")
	}
	return names
}

// Source returns the program of a recipe, "" if there is none of that name.
func Source(name string) string {
	b, err := files.ReadFile(name + ".lua")
	if err != nil {
		return ""
	}
	return string(b)
}

// rootLine is the first line of code of every file.
var rootLine = regexp.MustCompile(`(?m)^local root = "([^"]*)"$`)

// Root returns where a recipe keeps its keys: "/queue/" for the queue, "/ctr" for the
// counter, "" if there is no such recipe.
func Root(name string) string {
	found := rootLine.FindStringSubmatch(Source(name))
	if found == nil {
		return ""
	}
	return found[1]
}

// SourceAt returns the program of a recipe with its keys below another root.
// The root must begin with a slash, and end in one if the recipe's own does.
func SourceAt(name, root string) (string, error) {
	source, own := Source(name), Root(name)
	switch {
	case source == "":
		return "", fmt.Errorf("there is no recipe %q; there are %s", name, strings.Join(Names(), ", "))
	case len(root) < 2 || root[0] != '/' || strings.HasSuffix(root, "/") != strings.HasSuffix(own, "/"):
		return "", fmt.Errorf("%q can't be the root of a %s: it must be of the form %q", root, name, own)
	case strings.ContainsAny(root, "\"\\\n\r\x00"):
		return "", fmt.Errorf("the root %q holds characters that a recipe's can't hold", root)
	}
	return strings.Replace(source, "local root = "+strconv.Quote(own), `local root = "`+root+`"`, 1), nil
}
