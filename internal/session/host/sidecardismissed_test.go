package host

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestSidecarOfADeletedUser: when a sidecar's user is deleted while no member can be reached, programs learn of it afterwards: serializable
// reads of cached keys are refused, and watches end.
func TestSidecarOfADeletedUser(t *testing.T) {
	valCtxCh = nil
	synctest.Test(t, func(t *testing.T) {
		plan := &sidecarPlan{Users: true, Pause: 20, Sidecars: []sidecarSettings{{Cache: []string{"/p/"}}}, Own: []bool{false}}
		w := newSidecarWorld(t, plan)
		w.cluster.start(t, keptKey, sidecarHang)
		w.addUsers()
		s := w.newSidecar(0, plan.Sidecars[0])
		s.begin()
		a := w.newSidecarApp(0, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		read := func() error {
			_, err := a.c.Get(ctx, "/p/a", clientv3.WithSerializable())
			return err
		}
		require.Eventually(t, func() bool {
			_, err := a.c.Put(ctx, "/p/a", "v")
			return err == nil && read() == nil
		}, sidecarHang, 100*time.Millisecond)
		watch := a.c.Watch(ctx, "/q/a", clientv3.WithCreatedNotify())
		require.True(t, (<-watch).Created)
		time.Sleep(10 * time.Second) // until then the sidecar may have asked a member for what it didn't have yet

		w.cluster.rig.shut.Store(true)
		w.cluster.wires.cutAll("")
		w.enact(&pb.InternalRaftRequest{AuthUserDelete: &pb.AuthUserDeleteRequest{Name: s.user()}})
		require.NoError(t, read(), "the sidecar can't know")
		w.cluster.rig.shut.Store(false)
		time.Sleep(20 * time.Second)
		require.ErrorContains(t, read(), "etcdserver: authentication failed")
		r, ok := <-watch
		require.True(t, ok)
		require.ErrorContains(t, r.Err(), "etcdserver: authentication failed")

		require.NoError(t, a.c.Close())
		s.end(0)
		w.cluster.stop()
	})
}
