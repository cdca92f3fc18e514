package streams_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
)

// seen is what there is outside of an instance while it stands at a failpoint.
type seen struct {
	inFlight  []streams.InFlight
	committed map[kafka.TopicPartition]kafka.Offset // by the group
	ends      map[kafka.TopicPartition]int64        // of the logs, open transactions included
	err       error
}

// look asks the brokers. It is called by the stream thread, so what it sees does not move.
func (c *counting) look(ctx context.Context, at streams.Stage, inFlight []streams.InFlight) seen {
	s := seen{inFlight: inFlight}
	var tps []kafka.TopicPartition
	for _, in := range inFlight {
		tps = append(tps, kafka.TopicPartition(in.TopicPartition))
	}
	offsets := c.client.CommittedOffsetsNow
	if at == streams.StageAfterEndTransaction { // answered, and the offsets become visible with the marker, a moment later
		offsets = c.client.CommittedOffsets
	}
	if s.committed, s.err = offsets(ctx, c.app, tps); s.err == nil {
		s.ends, s.err = c.client.ListOffsets(ctx, tps, kafka.LatestOffset, kafka.ReadUncommitted)
	}
	return s
}

// At each stage, just what its description says is written and committed, and what is told to be in flight agrees with the brokers. The commit
// then goes on as if nothing had been.
func TestFailpoint(t *testing.T) {
	for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
		for _, stage := range streams.Stages(guarantee) {
			t.Run(string(guarantee)+"/"+string(stage), func(t *testing.T) {
				t.Parallel()
				c := newCounting(t)
				c.guarantee = guarantee
				found := make(chan seen, 1)
				cfg := c.config()
				cfg.Failpoint = &streams.Failpoint{At: stage, Reached: func(ctx context.Context, inFlight []streams.InFlight) {
					if bothCount(inFlight) && len(found) == 0 { // this thread is the only one that sends
						found <- c.look(ctx, stage, inFlight)
					}
				}}
				r := start(t, c.topology(), cfg)
				r.await(streams.StateRunning)
				sent := c.sendUntil(found, func(s seen) { c.checkStage(stage, s) })
				want := map[string]string{}
				for _, w := range words {
					want[w] = strconv.Itoa(sent)
				}
				c.awaitCounts(want)
				if err := r.end(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// sendUntil sends all words, and again until the failpoint was reached: what one round leads to may come in two commits. It returns how often.
func (c *counting) sendUntil(found <-chan seen, check func(seen)) (sent int) {
	c.t.Helper()
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for limit := time.After(deadline); ; {
		c.send(words...)
		sent++
		select {
		case s := <-found:
			if s.err != nil {
				c.t.Fatal(s.err)
			}
			check(s)
			return sent
		case <-again.C:
		case <-limit:
			c.t.Fatal("the failpoint was not reached")
		}
	}
}

// bothCount tells that both counting tasks have counted something since the last commit.
func bothCount(inFlight []streams.InFlight) bool {
	n := 0
	for _, in := range inFlight {
		if strings.HasSuffix(in.Topic, "-repartition") && in.Processed > 0 {
			n++
		}
	}
	return n == 2
}

func (c *counting) checkStage(stage streams.Stage, s seen) {
	c.t.Helper()
	groupHas := stage == streams.StageAfterEndTransaction || stage == streams.StageAfterOffsetCommit && c.guarantee == streams.AtLeastOnce
	flushed := map[int32]bool{} // by partition of the changelog
	var processed int64
	for _, in := range s.inFlight {
		tp := kafka.TopicPartition(in.TopicPartition)
		if tp.Topic == c.in {
			processed += in.Position
		}
		switch {
		case in.Store != "":
			flushed[in.Partition] = in.Position > in.Committed
			marker := stage == streams.StageAfterEndTransaction && s.ends[tp] == in.Position+1
			if s.ends[tp] != in.Position && !marker {
				c.t.Errorf("%s is acknowledged up to %d, and its log ends at %d", tp, in.Position, s.ends[tp])
			}
		case s.committed[tp].Offset != in.Committed:
			c.t.Errorf("the group has offset %d of %s, told was %d", s.committed[tp].Offset, tp, in.Committed)
		case groupHas && in.Committed != in.Position:
			c.t.Errorf("%s is committed up to %d of %d", tp, in.Committed, in.Position)
		case tp.Topic != c.in && !groupHas && in.Committed >= in.Position:
			c.t.Errorf("%s has nothing in flight: %d to %d", tp, in.Committed, in.Position)
		}
	}
	want := map[int32]bool{0: true, 1: true}
	switch stage {
	case streams.StageCachesNotFlushed:
		want = map[int32]bool{0: false, 1: false}
	case streams.StageInTransaction:
		want = map[int32]bool{0: true, 1: false}
	}
	if !maps.Equal(want, flushed) {
		c.t.Errorf("changelog partitions flushed: %v, want %v", flushed, want)
	}
	// All that was sent has arrived. Without transactions there are no markers between the records.
	if c.guarantee == streams.AtLeastOnce {
		var arrived int64
		for tp, end := range s.ends {
			if strings.HasSuffix(tp.Topic, "-repartition") {
				arrived += end
			}
		}
		if arrived != processed {
			c.t.Errorf("%d words are in the repartition topic, %d were processed", arrived, processed)
		}
	}
}

// A failpoint that a commit does not come to would never be reached, and is refused.
func TestFailpointIsChecked(t *testing.T) {
	c := newCounting(t)
	reached := func(context.Context, []streams.InFlight) {}
	for name, tt := range map[string]struct {
		guarantee streams.Guarantee
		failpoint *streams.Failpoint
		says      string // "" for a good one
	}{
		"none":                         {streams.AtLeastOnce, nil, ""},
		"a stage of both":              {streams.AtLeastOnce, &streams.Failpoint{At: streams.StageBeforeOffsetCommit, Reached: reached}, ""},
		"a transaction's":              {streams.ExactlyOnce, &streams.Failpoint{At: streams.StageInTransaction, Reached: reached}, ""},
		"a transaction's without one":  {streams.AtLeastOnce, &streams.Failpoint{At: streams.StageInTransaction, Reached: reached}, "no stage"},
		"an end of none":               {streams.AtLeastOnce, &streams.Failpoint{At: streams.StageAfterEndTransaction, Reached: reached}, "no stage"},
		"a stage that there is not":    {streams.ExactlyOnce, &streams.Failpoint{At: "sometime", Reached: reached}, `no stage "sometime"`},
		"a stage with nothing to call": {streams.ExactlyOnce, &streams.Failpoint{At: streams.StageInTransaction}, "nothing to call"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := c.config()
			cfg.ProcessingGuarantee, cfg.Failpoint = tt.guarantee, tt.failpoint
			_, err := streams.NewApp(c.topology(), cfg)
			if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("error %v, want %q", err, tt.says)
			}
		})
	}
}

// Every stage of a commit at least once is one of a transaction's commit too, in the same order.
func TestStagesOfBothGuarantees(t *testing.T) {
	all := streams.Stages(streams.ExactlyOnce)
	both := slices.DeleteFunc(slices.Clone(all), func(s streams.Stage) bool { return !slices.Contains(streams.Stages(streams.AtLeastOnce), s) })
	if !slices.Equal(both, streams.Stages(streams.AtLeastOnce)) {
		t.Errorf("%v and %v", all, streams.Stages(streams.AtLeastOnce))
	}
}
