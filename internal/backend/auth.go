package backend

import (
	"bytes"
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

// writeAuth makes the buckets what they shall be. What is in them already isn't written.
func writeAuth(w writer, a *Auth) error {
	for bucket, want := range map[string]map[string][]byte{bucketAuth: a.Auth, bucketAuthUsers: a.Users, bucketAuthRoles: a.Roles} {
		have := content(w, bucket)
		for _, k := range slices.Sorted(maps.Keys(have)) {
			if _, stays := want[k]; stays {
				continue
			}
			if err := w.remove(bucket, []byte(k)); err != nil {
				return fmt.Errorf("bucket %q: %w", bucket, err)
			}
		}
		for _, k := range slices.Sorted(maps.Keys(want)) {
			if v, there := have[k]; there && bytes.Equal(v, want[k]) {
				continue
			}
			if err := w.put(bucket, []byte(k), want[k]); err != nil {
				return fmt.Errorf("bucket %q: %w", bucket, err)
			}
		}
	}
	return nil
}
