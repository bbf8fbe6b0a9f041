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

// CutAuth adds to a cut what has changed of users, roles and permissions since the file was
// written, or all, if file is nil: it hasn't all of them. It is called after the stores were unlocked: to
// encode many users takes milliseconds.
func CutAuth(sys *backend.System, file, now *auth.State) {
	switch {
	case now == file:
	case file == nil:
		all := now.Stored()
		sys.Auth = &backend.AuthChange{Auth: all.Auth, Whole: true, Users: all.Users, Roles: all.Roles}
	default:
		change := now.StoredSince(file)
		sys.Auth = &backend.AuthChange{Auth: change.Auth, Users: change.Users, Roles: change.Roles}
	}
}
