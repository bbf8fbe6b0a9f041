package serve

import (
	"context"
	"net/http"
)

// upgrades reports whether the client wants to go on in another protocol than HTTP.
func upgrades(r *http.Request) bool { return len(r.Header["Upgrade"]) > 0 }

// followed ends requests with Stop that have taken over their connections: net/http knows
// those no longer.
func (s *Server) followed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !upgrades(r) {
			next.ServeHTTP(w, r)
			return
		}
		if !s.enter() {
			http.Error(w, "the server is stopping", http.StatusServiceUnavailable)
			return
		}
		defer s.wg.Done()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// enter has Stop wait until wg.Done, unless it has begun.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.wg.Add(1)
	return true
}
