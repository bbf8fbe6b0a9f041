package sidecar

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/stoa-kv/stoa/internal/sidecar/cache"
)

const (
	// A prefix that was too large, or whose watch was refused, is tried again after these.
	tooLargePause = 5 * time.Minute
	minRefollow   = 100 * time.Millisecond
	maxRefollow   = 10 * time.Second
	// pageBytes is about how large a page is.
	pageBytes = 1 << 20
	// firstPage is the number of keys of the first one.
	firstPage = 100
	maxPage   = 10_000
)

// keep has the prefix cached, again and again.
func (p *cached) keep() {
	for pause := minRefollow; ; pause = min(2*pause, maxRefollow) {
		p.follow()
		filled := p.fill()
		p.unfollow()
		if p.of.ctx.Err() != nil {
			return
		}
		if filled {
			pause = minRefollow
		}
		wait := pause
		if p.tooLarge() {
			wait = tooLargePause
			p.of.lg.Warn("a prefix doesn't fit into the memory for cached keys: its reads are forwarded", zap.String("prefix", p.name), zap.Int64("cache-memory", p.of.budget.Limit))
		}
		if !rest(p.of.ctx, wait) {
			return
		}
	}
}

func (p *cached) follow() {
	p.of.ws.mu.Lock()
	defer p.of.ws.mu.Unlock()
	p.ended = false
	key, end := p.prefix.Range()
	p.of.ws.hub.Follow(key, end, p)
}

// unfollow ends the watch; what is too large stays so.
func (p *cached) unfollow() {
	p.of.ws.mu.Lock()
	defer p.of.ws.mu.Unlock()
	p.of.ws.hub.Unfollow(p.prefix.Range())
	if !p.prefix.TooLarge() {
		p.prefix.End("")
	}
	p.of.move()
}

func (p *cached) tooLarge() bool {
	p.of.ws.mu.Lock()
	defer p.of.ws.mu.Unlock()
	return p.prefix.TooLarge()
}

// fill loads what is to be loaded, until the watch ends or the prefix is too large.
func (p *cached) fill() (filled bool) {
	size := int64(firstPage)
	for p.of.ctx.Err() == nil {
		p.of.ws.mu.Lock()
		page, wants := p.prefix.Wants()
		over := p.ended || p.prefix.TooLarge()
		p.of.ws.mu.Unlock()
		switch {
		case over:
			return filled
		case wants:
			size = p.load(page, size)
		default:
			filled = true
			select {
			case <-p.wake:
			case <-p.of.ctx.Done():
			}
		}
	}
	return filled
}

// load reads a page of so many keys, and returns how many the next one should have.
func (p *cached) load(page cache.Page, size int64) (next int64) {
	ctx, cancel := context.WithTimeout(p.of.ctx, questionTimeout)
	defer cancel()
	_, end := p.prefix.Range()
	r, err := p.of.question.get(ctx, &pb.RangeRequest{Key: page.Key, RangeEnd: end, Limit: size, Revision: page.Revision})
	p.of.ws.mu.Lock()
	if err == nil {
		err = p.prefix.Load(page, r)
	} else if errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted) {
		p.prefix.Reload()
	}
	p.of.move()
	p.of.ws.mu.Unlock()
	if err != nil {
		p.of.lg.Warn("failed to load keys of a cached prefix", zap.String("prefix", p.name), zap.Error(err))
		rest(ctx, minRefollow)
		return size
	}
	bytes := int64(proto.Size(r))
	return min(max(1, size*pageBytes/max(1, bytes)), 4*size, maxPage)
}
