package backend

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
)

func readAuth(r reader) Auth {
	return Auth{content(r, bucketAuth), content(r, bucketAuthUsers), content(r, bucketAuthRoles)}
}

func content(r reader, bucket string) map[string][]byte {
	var all map[string][]byte
	r.ascend(bucket, nil, func(k, v []byte) bool {
		if all == nil {
			all = map[string][]byte{}
		}
		all[string(k)] = bytes.Clone(v)
		return true
	})
	return all
}

func writeAuth(w writer, c *AuthChange) error {
	write := changeBucket
	if c.Whole {
		write = replaceBucket
	}
	return errors.Join(replaceBucket(w, bucketAuth, c.Auth), write(w, bucketAuthUsers, c.Users), write(w, bucketAuthRoles, c.Roles))
}

// replaceBucket makes a bucket what it shall be. What is in it already isn't written.
func replaceBucket(w writer, bucket string, want map[string][]byte) error {
	change := maps.Clone(want)
	for k, v := range content(w, bucket) {
		switch now, stays := want[k]; {
		case !stays:
			if change == nil {
				change = map[string][]byte{}
			}
			change[k] = nil
		case bytes.Equal(now, v):
			delete(change, k)
		}
	}
	return changeBucket(w, bucket, change)
}

// changeBucket puts keys, and removes those whose value is nil.
func changeBucket(w writer, bucket string, change map[string][]byte) (err error) {
	for _, k := range slices.Sorted(maps.Keys(change)) {
		if v := change[k]; v != nil {
			err = w.put(bucket, []byte(k), v)
		} else {
			err = w.remove(bucket, []byte(k))
		}
		if err != nil {
			return fmt.Errorf("bucket %q: %w", bucket, err)
		}
	}
	return nil
}
