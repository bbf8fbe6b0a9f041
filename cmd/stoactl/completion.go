package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stoa-kv/stoa/internal/extension"
)

const (
	// completionTime bounds what a user waits for after the tabulator key.
	completionTime = 2 * time.Second
	maxCompletions = 100
)

// completer finds the words that an argument may be.
type completer func(ctx context.Context, c *clientv3.Client, typed string) ([]string, error)

// completeFromCluster has the first arguments of commands completed by what the cluster has.
func (a *app) completeFromCluster(root *cobra.Command) {
	for path, complete := range map[string]completer{
		"get": keysFrom, "put": keysFrom, "del": keysFrom, "watch": keysFrom,
		"move-leader":        membersFrom,
		"extension register": extensionsFrom, "extension show": extensionsFrom, "extension logs": extensionsFrom,
		"extension profile": extensionsFrom, "extension ack": extensionsFrom, "extension unack": extensionsFrom,
		"extension enable": extensionsFrom, "extension disable": extensionsFrom, "extension remove": extensionsFrom,
	} {
		if cmd, rest, err := root.Find(strings.Fields(path)); err == nil && len(rest) == 0 {
			cmd.ValidArgsFunction = a.completeFirst(complete)
		}
	}
}

// completeFirst completes a command's first argument. Without an answer there are no words: an error
// would stand in the line that is being typed.
func (a *app) completeFirst(complete completer) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, typed string) (words []string, directive cobra.ShellCompDirective) {
		if len(args) > 0 || a.o.compose != "" {
			return nil, cobra.ShellCompDirectiveDefault
		}
		a.o.command = min(a.o.command, completionTime)
		_ = a.withClient(func(ctx context.Context, c *clientv3.Client) (err error) {
			words, err = complete(ctx, c, typed)
			return err
		})
		if len(words) == 1 && strings.HasSuffix(words[0], "/") {
			return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// keysFrom goes through keys as through directories: each word ends with the next slash, or is a key.
func keysFrom(ctx context.Context, c *clientv3.Client, typed string) (words []string, err error) {
	from, end := typed, clientv3.GetPrefixRangeEnd(typed)
	if typed == "" {
		from, end = "\x00", "\x00"
	}
	for len(words) < maxCompletions {
		r, err := c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(1), clientv3.WithKeysOnly(), clientv3.WithSerializable())
		if err != nil || len(r.Kvs) == 0 {
			return words, err
		}
		word := string(r.Kvs[0].Key)
		next := word + "\x00"
		if i := strings.IndexByte(word[len(typed):], '/'); i >= 0 {
			word = word[:len(typed)+i+1]
			next = clientv3.GetPrefixRangeEnd(word)
		}
		if strings.IndexFunc(word, unprintable) < 0 {
			words = append(words, word)
		}
		if from = next; end != "\x00" && from >= end {
			break
		}
	}
	return words, nil
}

// unprintable characters, and spaces, can't be typed like the others.
func unprintable(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == unicode.ReplacementChar }

func membersFrom(ctx context.Context, c *clientv3.Client, typed string) (words []string, err error) {
	r, err := c.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range r.Members {
		if id := fmt.Sprintf("%x", m.ID); strings.HasPrefix(id, typed) {
			words = append(words, cobra.CompletionWithDesc(id, m.Name))
		}
	}
	return words, nil
}

// extensionsFrom finds names: beside the source of an extension there are keys below it.
func extensionsFrom(ctx context.Context, c *clientv3.Client, typed string) (words []string, err error) {
	prefix := extension.Root + typed
	r, err := c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithSerializable())
	if err != nil {
		return nil, err
	}
	for _, kv := range r.Kvs {
		if name := kv.Key[len(extension.Root):]; !bytes.ContainsRune(name, '/') && string(kv.Key) != extension.LimitsKey {
			words = append(words, string(name))
		}
	}
	return words, nil
}
