# Go is the only requirement, except where a target names others. Binaries go to bin/.

GO          ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
PROMTOOL    := github.com/prometheus/prometheus/cmd/promtool@v0.316.0
FUZZTIME    ?= 10s
FUZZED      ?= ./internal/... ./api/... ./cmd/...
DURATION    ?= 5m
RUNS        ?= 300
ROUNDS      ?= 10
FLIPS       ?= 600
SEED        ?= 1
LOAD        ?= 1m
ARGS        ?=
UNIT        := ./api/... ./client/... ./cmd/... ./deploy/... ./examples/... ./extensions/... ./internal/... ./test/allocs/... ./test/bench/... ./test/costs/... ./test/compose/bench/... ./test/compose/osc/... ./test/disk/... ./test/elle/... ./test/region/... ./test/sheet/... ./test/sim/cover/... ./test/sim/forever/... ./test/plot/... ./test/recipes/...

.DEFAULT_GOAL := help

## build: bin/stoa, bin/stoactl, bin/waldump, static binaries
.PHONY: build
build:
	CGO_ENABLED=0 $(GO) build -o bin/ ./cmd/...

## release: dist/: archives for Linux (all) and macOS (stoactl), their checksums and bills of materials, reproducible (ARGS="-only linux/arm64")
.PHONY: release
release:
	$(GO) run ./deploy/release $(ARGS)

## run: a server on 127.0.0.1:2379 with its data in ./default.stoa (ARGS="--partitions 4")
.PHONY: run
run:
	$(GO) run ./cmd/stoa $(ARGS)

## test: unit tests
.PHONY: test
test:
	$(GO) test $(UNIT)

## test-race: unit tests under the race detector (four at once of those that wait), and without it what measures, or explores a model (needs a C compiler)
.PHONY: test-race
test-race:
	CGO_ENABLED=1 $(GO) test -race -parallel 4 $(UNIT)
	$(GO) test ./test/costs/... ./client/compose/internal/commit ./internal/balance ./internal/golden ./internal/script ./internal/store

## stress: stress tests with goroutines under the race detector, DURATION (5m) for each package (needs a C compiler)
.PHONY: stress
stress:
	$(GO) test -race -v -count=1 -timeout 0 -run '^TestStress' $$(grep -rl '"stress", ' internal --include='*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|./|') -stress=$(DURATION)

## test-damage: bits, bytes, sectors and pages of logs, state files, backups and records, FLIPS (600) of a state file; says how many
.PHONY: test-damage
test-damage:
	$(GO) test -v -count=1 -timeout 0 ./internal/backend -run 'Damaged|Torn|Broken|Flipped|Truncated' -flips $(FLIPS)
	$(GO) test -v -count=1 ./internal/wal ./internal/bootstrap ./internal/snapshot ./internal/etcdwal ./internal/transport -run 'Damaged|Every|BitFlip|Torn|Truncated|Copy'

## cost-model: the time and the memory of a step of the extension language, by construct (ARGS="-search 1h" looks for worse ones)
.PHONY: cost-model
cost-model:
	$(GO) run ./test/costs $(ARGS)

## lint: gofmt, go vet, staticcheck
.PHONY: lint
lint:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt is needed:"; echo "$$out"; exit 1; fi
	$(GO) vet -tags faults ./...
	@for f in $$(git grep -l '^//go:build race$$' '*.go'); do $(GO) vet $$f || exit 1; done # each by itself: it names nothing of the others
	$(GO) run $(STATICCHECK) -tags faults ./...

## peers: build etcd, etcdctl and etcdutl into bin/peers, from the Go proxy
.PHONY: peers
peers:
	$(GO) run ./test/peers

## build-clock: bin/stoa-clock, a server whose wall clock tests can set (a minute the first time)
.PHONY: build-clock
build-clock:
	$(GO) run ./test/process/clock/build

## peers-zookeeper: fetch ZooKeeper into bin/peers, from Maven Central (needs java)
.PHONY: peers-zookeeper
peers-zookeeper:
	$(GO) run ./test/peers zookeeper

## test-compat: end to end with real etcdctl and clientv3, and each answer compared with etcd's
.PHONY: test-compat test-waiting
test-compat: build build-clock peers test-waiting
	$(GO) test -count=1 -timeout 20m ./test/compat/differential -rapid.seed=$(SEED) & differential=$$!; \
	$(GO) test -count=1 -timeout 20m ./test/compat ./test/extensions $$($(GO) list ./test/adversary ./test/compat/... ./test/crashpoints ./test/extensions/bench ./test/migrate/... ./test/overload ./test/process/... | grep -v /differential$$); others=$$?; \
	wait $$differential && exit $$others

# Those of test-compat that wait nearly always.
test-waiting: build build-clock peers
	$(GO) test -count=1 -timeout 20m ./test/operator ./test/compose

## test-differential: random operations on stoa and etcd, ROUNDS times (10)
.PHONY: test-differential
test-differential: build peers
	$(GO) test -count=$(ROUNDS) -timeout 600m ./test/compat/differential -run Drawn

## test-etcd: etcd's own tests, with stoa in etcd's place
.PHONY: test-etcd
test-etcd: build peers
	./test/etcd/run.sh

## test-etcd-integration: etcd's package integration, each member of whose clusters is a process of stoa (half an hour for each number of PARTITIONS="1 2 4"; TESTS='^TestV3Watch', QUICK=1)
.PHONY: test-etcd-integration
test-etcd-integration: build peers
	./test/etcd/integration.sh

## test-robustness: etcd's robustness tests (traffic, faults, and checks of what clients and watches saw) on stoa, ROUNDS times (10; a minute each)
.PHONY: test-robustness
test-robustness: build peers
	ROUNDS=$(ROUNDS) ./test/etcd/robustness.sh

## test-etcdctl: etcd's own tests, with stoactl in etcdctl's place
.PHONY: test-etcdctl
test-etcdctl: build peers
	CTL=bin/stoactl PARTITIONS=2 ./test/etcd/run.sh

## test-etcd-sidecar: etcd's own tests of clients and of its grpc-proxy, with a sidecar in front of each member
.PHONY: test-etcd-sidecar
test-etcd-sidecar: build peers
	FRONT=sidecar PARTITIONS=2 ./test/etcd/run.sh

## test-clients: etcd clients in Python, JavaScript, Java and Rust, on both gRPC transports (LANGS="python rust"; needs their runtimes and package registries)
.PHONY: test-clients
test-clients: build peers
	$(GO) test -count=1 -v -timeout 120m ./test/clients $(if $(LANGS),-langs "$(LANGS)") $(ARGS)

## test-oracle: users and roles beside etcd's own store of them (REQUESTS=1000000)
.PHONY: test-oracle
test-oracle:
	cd test/oracle && GOWORK=off $(GO) test -count=1 -v . -requests $(or $(REQUESTS),1000000) -seed $(SEED)

## test-interop: grpc's interoperability cases, on the own gRPC transport
.PHONY: test-interop
test-interop:
	cd test/interop && GOWORK=off $(GO) test -count=1 .

## test-differential-wire: generated frames, also malformed ones, to the own gRPC transport and to grpc-go's (SEQUENCES=100000; ten minutes)
.PHONY: test-differential-wire
test-differential-wire:
	$(GO) test -count=1 -timeout 60m ./internal/h2 -run '^TestDifferential$$' -sequences $(or $(SEQUENCES),100000)

## dashboards: render the dashboards in deploy/grafana
.PHONY: dashboards
dashboards:
	$(GO) run ./deploy/grafana

## test-dashboards: rules and dashboards, ours and etcd's, by Prometheus' parser and promtool, on a running cluster (builds promtool: two minutes the first time)
.PHONY: test-dashboards
test-dashboards: build
	GOBIN=$(CURDIR)/bin $(GO) install -tags remove_all_sd $(PROMTOOL)
	cd test/dashboards && GOWORK=off $(GO) test -count=1 -v .

## test-ui: the page for browsers in Chromium, with axe-core; writes docs/img/ui-*.png (needs chromium and npm; ARGS="-keys 1000000")
.PHONY: test-ui
test-ui: build
	npm install --no-save --no-audit --no-fund --prefix bin/axe axe-core@4.14.1
	cd test/ui && GOWORK=off $(GO) test -count=1 -v -timeout 20m . -pictures $(CURDIR)/docs/img $(ARGS)

## test-kube: Kubernetes' control plane on stoa, directly and through a sidecar, and deploy/kubernetes applied to it (needs kubectl; builds kube-apiserver and two others: ten minutes the first time)
.PHONY: test-kube
test-kube: build
	cd test/kube/apiserver && GOWORK=off CGO_ENABLED=0 $(GO) build -o $(CURDIR)/bin/ k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kube-scheduler
	$(GO) test -count=1 -v -timeout 30m ./test/kube

## test-newcomer: from a clean clone to a server, a cluster with its page and a sidecar, with README.md's commands alone; prints the times (EMPTY=1: with empty caches)
.PHONY: test-newcomer
test-newcomer:
	EMPTY=$(EMPTY) ./test/newcomer/run.sh

## test-adversary: a client without rights tries everything that two servers offer (REQUESTS=20000 SEED=1)
.PHONY: test-adversary
test-adversary: build
	$(GO) test -count=1 -v -timeout 60m ./test/adversary -requests $(or $(REQUESTS),20000) -seed $(SEED)

## test-faults: kill, pause and disconnect real servers under load, and set their clocks
.PHONY: test-faults
test-faults: build build-clock peers
	$(GO) test -count=1 -timeout 60m -tags faults ./test/faults/...

## test-jepsen: servers in network namespaces and on disks of their own: links cut in every shape, slow and lossy, power lost, syncs that fail, beside kills and pauses (LOAD=1m per case; needs root and FUSE)
.PHONY: test-jepsen
test-jepsen: build build-clock peers
	$(GO) test -count=1 -v -timeout 600m -tags faults ./test/faults -network -disks -run '^Test(Network|Disks)$$' -load=$(LOAD) $(ARGS)

## test-crashpoints: kill servers at each system call between a request and its answer, and have calls fail (Linux on amd64; four minutes)
.PHONY: test-crashpoints
test-crashpoints: build
	$(GO) test -count=1 -v -timeout 30m ./test/crashpoints -stride $(or $(STRIDE),1)

## test-upgrade: rolling upgrades from the release before and back, under load (four minutes; needs the history of this repository)
.PHONY: test-upgrade
test-upgrade: build
	$(GO) test -v -count=1 -timeout 20m -tags faults ./test/faults -run '^TestUpgrade|EarlierRelease' $(ARGS)

## test-life: a cluster through an operator's months, step after step under a checked load (ARGS="-steps 40 -seed 7 -partitions 2"; five seconds a step)
.PHONY: test-life
test-life: build peers
	$(GO) test -v -count=1 -timeout 0 ./test/life $(or $(ARGS),-steps 26)

## test-compose: many clients of several clusters, of stoa and of etcd, under faults (LOAD=1m per case)
.PHONY: test-compose
test-compose: build peers
	$(GO) test -v -count=1 -timeout 120m ./test/compose -all -load=$(LOAD) $(ARGS)

## sim: seeded whole-cluster simulation (SEED=1 RUNS=300; ARGS=-swarm: runs that have only some of all)
.PHONY: sim
sim:
	$(GO) test -v -count=1 -timeout 60m ./test/sim -run TestSim -seed=$(SEED) -runs=$(RUNS) $(ARGS)

## interleavings: all schedules of small scenarios, up to a number of preemptions (seven minutes; ARGS="-schedules 20000": the first of each; ARGS="-preemptions 3")
.PHONY: interleavings
interleavings:
	$(GO) test -v -count=1 -timeout 0 ./test/interleave -run TestScenarios $(ARGS)

## sim-forever: seeds of each kind, and runs chosen by what few have reached, on all cores until it is stopped (ARGS="-for 1h"); what fails is kept in bin/sim, and runs first the next time
.PHONY: sim-forever
sim-forever:
	$(GO) run ./test/sim/forever $(ARGS)

## bench: all goals, side by side with etcd and ZooKeeper (an hour on 2 cores; needs java and root); writes docs/benchmarks*.md and docs/img
.PHONY: bench
bench: build peers peers-zookeeper
	$(GO) build -o bin/ ./test/bench
	bin/bench -write docs/benchmarks.md -img docs/img $(ARGS)
	$(MAKE) bench-recipes bench-compose ARGS=

## bench-quick: a short run of fewer cells (under five minutes); writes no files
.PHONY: bench-quick
bench-quick: build peers
	$(GO) build -o bin/ ./test/bench
	exec bin/bench -quick $(ARGS)

## bench-sessions: the sections about sessions; writes docs/benchmarks.md
.PHONY: bench-sessions
bench-sessions: build peers
	$(GO) build -o bin/bench ./test/bench
	exec bin/bench -what sessions,switches,latency,isolation,memory -write docs/benchmarks.md -img docs/img $(ARGS)

## bench-sidecar: calls and watches through sidecars, beside those without and etcd's grpc-proxy (five minutes); writes docs/benchmarks.md
.PHONY: bench-sidecar
bench-sidecar: build peers
	$(GO) build -o bin/bench ./test/bench
	exec bin/bench -what sidecars,coalesced -write docs/benchmarks.md -img docs/img $(ARGS)

## test-extensions: attacks by extensions on real servers (ARGS=-long: as large as the limits allow; needs an idle machine)
.PHONY: test-extensions
test-extensions: build
	$(GO) test -count=1 -timeout 60m ./test/extensions -v $(ARGS)

## test-overload: more than a server has memory for, and much at once, asked for by clients in good faith and in bad (five minutes)
.PHONY: test-overload
test-overload: build
	$(GO) test -count=1 -v -timeout 20m ./test/overload -long

## bench-balance: all load jumps onto one partition, is uniform, jumps all the time (ten minutes; ARGS="-uniform 1h"); writes docs/benchmarks.md
.PHONY: bench-balance
bench-balance: build
	$(GO) build -o bin/bench ./test/bench
	exec bin/bench -what balance -servers stoa -write docs/benchmarks.md -img docs/img $(ARGS)

## bench-shared: the parts that all partitions share, alone, and the stages of a put (five minutes); writes docs/benchmarks.md
.PHONY: bench-shared
bench-shared: build
	$(GO) build -o bin/bench ./test/bench
	exec bin/bench -what shared -servers stoa -write docs/benchmarks.md -img docs/img $(ARGS)

## bench-kube: what kube-apiserver's storage layer sends, beside etcd, and for how many nodes (ten minutes); writes docs/benchmarks-kube.md
.PHONY: bench-kube
bench-kube: build peers
	$(GO) build -o bin/bench ./test/bench
	exec bin/bench -what kube -length 6s -warmup 2s -write docs/benchmarks-kube.md -img docs/img $(ARGS)

## bench-extensions: what 0 to 10,000 registered extensions cost, as a table (five minutes)
.PHONY: bench-extensions
bench-extensions: build
	$(GO) run ./test/extensions/bench $(ARGS)

## bench-restore: backup and restore of a million keys beside etcdctl and etcdutl, as a table (three minutes; ARGS="-keys 100000")
.PHONY: bench-restore
bench-restore: build peers
	$(GO) run ./test/restore $(ARGS)

## bench-joiner: what a new member with a million keys costs, beside etcd's, as a table (ten minutes; ARGS="-keys 100000 -rounds 1")
.PHONY: bench-joiner
bench-joiner: build peers
	$(GO) run ./test/joiner $(ARGS)

## test-migrate: a million keys and 10,000 leases from etcd to stoa and back, under 1,000 writes/s, with kills (ARGS="-keys 100000")
.PHONY: test-migrate
test-migrate: build peers
	$(GO) run ./test/migrate/big -from etcd -to stoa $(ARGS)
	$(GO) run ./test/migrate/big -from stoa -to etcd $(ARGS)

## bench-recipes: counter, queue, barrier, election beside etcd and ZooKeeper (eight minutes)
.PHONY: bench-recipes
bench-recipes: build peers peers-zookeeper
	$(GO) build -o bin/bench-recipes ./test/recipes
	exec bin/bench-recipes -write docs/benchmarks-recipes.md -img docs/img $(ARGS)

## bench-compose: composed clusters in two regions beside one stretched cluster, and mirrored keys (20 minutes; needs root)
.PHONY: bench-compose
bench-compose: build peers
	$(GO) build -o bin/bench-compose ./test/compose/bench
	bin/bench-compose -write docs/benchmarks-compose.md -img docs/img $(ARGS)
	exec bin/bench-compose -mirrors -write docs/benchmarks-mirrors.md -img docs/img $(ARGS)

## bench-mirrors: a read of a mirror beside an unmirrored one, mirrored events, commands, and the latency of transactions (two minutes)
.PHONY: bench-mirrors
bench-mirrors: build peers
	$(GO) test ./test/compose -run '^$$' -bench MirroredRead -benchtime 30x $(ARGS)
	$(GO) test ./test/compose -run '^$$' -bench 'MirroredEvents|Commands' -benchtime 60000x $(ARGS)
	$(GO) test -v -count=1 ./test/compose -run '^TestTransactionLatency$$' $(ARGS)

## fuzz: every fuzz target for FUZZTIME (10s)
.PHONY: fuzz
fuzz:
	@for pkg in $$($(GO) list $(FUZZED)); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; done

## fuzz-entrance: fuzz targets of what is decoded before a client or a peer is authenticated, for FUZZTIME (10m) each
.PHONY: fuzz-entrance
fuzz-entrance: FUZZTIME = 10m
fuzz-entrance: FUZZED = ./api/... ./cmd/stoa ./internal/bootstrap ./internal/kvwire ./internal/node ./internal/password ./internal/replica ./internal/rpc ./internal/serve ./internal/sidecar/namespace ./internal/token ./internal/tracing ./internal/transport/...
fuzz-entrance: fuzz

## fuzz-wire: fuzz targets of the own gRPC transport (frames, header blocks, messages, beside x/net's decoders), for FUZZTIME (10m) each
.PHONY: fuzz-wire
fuzz-wire: FUZZTIME = 10m
fuzz-wire: FUZZED = ./internal/h2
fuzz-wire: fuzz

## proto: regenerate the code of stoa's own .proto files
.PHONY: proto
proto:
	./api/generate.sh

## ci: the checks that every change has to pass
.PHONY: ci
ci:
	.ci/run

.PHONY: help
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST) | awk '{ i = index($$0, ": "); printf "  %-22s %s\n", substr($$0, 1, i - 1), substr($$0, i + 2) }'
