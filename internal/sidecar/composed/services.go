package composed

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/stoa-kv/stoa/client/compose"
)

// services are etcd's KV, Watch and Lease services over a composition.
type services struct {
	clients *clients
	probes  map[string]*compose.Client // one for each cluster, so that none waits for another
}

func newServices(cfg compose.Config, mostClients int) (*services, error) {
	root, err := compose.New(cfg)
	if err != nil {
		return nil, err
	}
	s := &services{clients: &clients{root: root, most: mostClients}, probes: map[string]*compose.Client{}}
	for name := range cfg.Clusters {
		s.probes[name] = root.Fork()
	}
	return s, nil
}

// register adds the services to a gRPC server, whose stats.Handler is s.clients.
func (s *services) register(to grpc.ServiceRegistrar) {
	pb.RegisterKVServer(to, &kv{clients: s.clients})
	pb.RegisterLeaseServer(to, &lease{clients: s.clients})
	pb.RegisterWatchServer(to, &watch{clients: s.clients})
}

// check syncs with all clusters at once. It returns the number of those that have answered, and an
// error that names the others.
func (s *services) check(ctx context.Context) (answered int, err error) {
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for name, by := range s.probes {
		all.Go(func() {
			err := by.Sync(ctx, name)
			if isRefusal(err) {
				err = nil
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				answered++
				return
			}
			var named *compose.ClusterError
			if !errors.As(err, &named) {
				err = fmt.Errorf("cluster %q: %w", name, err)
			}
			errs = append(errs, err)
		})
	}
	all.Wait()
	return answered, errors.Join(errs...)
}

// close is for when there are no calls any more.
func (s *services) close() {
	s.clients.wg.Wait()
	_ = s.clients.root.Close()
}
