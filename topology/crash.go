package topology

import (
	"sync/atomic"

	"github.com/windowed-order-counter/lab/streams"
)

// CrashStore is the store whose records the crash trigger counts.
const CrashStore = "store-17"

// CrashTrigger is the lab's crash on purpose: it is due when a given record of CrashStore reaches the counting sub-topology and has not been
// counted yet. What that record's predecessors led to is then in the caches and, under exactly once, in an open transaction, while what the
// sub-topology before it wrote is committed.
type CrashTrigger struct {
	record int64
	seen   atomic.Int64 // by all threads of the instance
}

// NewCrashTrigger returns a trigger for the record of that number, from 1. 0 is never due.
func NewCrashTrigger(record int64) *CrashTrigger { return &CrashTrigger{record: record} }

// Due is called before an order of a store is counted, and reports whether that is the one.
func (c *CrashTrigger) Due(store string) bool {
	return store == CrashStore && c.seen.Add(1) == c.record
}

// The points inside a commit at which an instance can be told to crash, by the names of the engine's stages.
const (
	CrashCachesNotFlushed    = string(streams.StageCachesNotFlushed)
	CrashInTransaction       = string(streams.StageInTransaction)
	CrashBeforeOffsetCommit  = string(streams.StageBeforeOffsetCommit)
	CrashAfterOffsetCommit   = string(streams.StageAfterOffsetCommit)
	CrashAfterEndTransaction = string(streams.StageAfterEndTransaction)
)

// CrashPoints lists those that a commit under a processing guarantee has, in the order of the commit.
func CrashPoints(guarantee string) []string {
	stages := streams.Stages(streams.Guarantee(guarantee))
	names := make([]string, len(stages))
	for i, s := range stages {
		names[i] = string(s)
	}
	return names
}
