package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// PodKey is a key as kube-apiserver's are.
func PodKey(i int) string { return fmt.Sprintf("/registry/ns-%03d/pod-%08d", i%500, i) }

// Fill puts the first PodKeys with values of 256 bytes, many in a transaction.
func Fill(keys int, endpoints ...string) error {
	const workers, batch = 8, 100
	cli, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer cli.Close()
	var all sync.WaitGroup
	errs := make([]error, workers)
	value := string(make([]byte, 256))
	for w := range workers {
		all.Go(func() {
			for first := w * batch; first < keys && errs[w] == nil; first += workers * batch {
				var ops []clientv3.Op
				for i := first; i < min(first+batch, keys); i++ {
					ops = append(ops, clientv3.OpPut(PodKey(i), value))
				}
				_, errs[w] = cli.Txn(context.Background()).Then(ops...).Commit()
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("filling the cluster: %w", err)
	}
	return nil
}
