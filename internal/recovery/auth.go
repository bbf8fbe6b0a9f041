package recovery

import (
	"fmt"

	"github.com/stoa-kv/stoa/internal/auth"
	"github.com/stoa-kv/stoa/internal/backend"
)

// Auth returns the users, roles and permissions in the file. If stored is false, the file
// needs all of it with the next cut.
func Auth(meta *backend.Meta) (s *auth.State, stored bool, err error) {
	s, stored, err = auth.Load(auth.Stored(meta.Auth))
	if err != nil {
		return nil, false, fmt.Errorf("users and roles: %w: %w", backend.ErrDamaged, err)
	}
	return s, stored, nil
}

// CutAuth adds users, roles and permissions to what a cut writes, if they aren't those that
// the file has. It is called after the stores were unlocked: to encode many users takes
// milliseconds.
func CutAuth(sys *backend.System, file, now *auth.State) {
	if now != file {
		b := backend.Auth(now.Stored())
		sys.Auth = &b
	}
}
