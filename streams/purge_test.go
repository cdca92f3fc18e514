package streams

import (
	"log/slog"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/kafka"
)

// A restarted thread that found records in its very first round, and committed them in it, purged them at once, an interval of a day
// notwithstanding: the last purge was taken to be ages ago. The records were gone before anybody could verify them.
func TestFirstPurgeIsDueAfterAnInterval(t *testing.T) {
	tp := kafka.TopicPartition{Topic: "app-by-word-repartition"}
	seed := brokertest.Bootstrap(brokertest.Embedded(t, brokertest.Topics(1, tp.Topic)))
	client, err := kafka.New(t.Context(), kafka.Config{Seeds: []string{seed}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	a := &App{cfg: DefaultConfig(), log: slog.New(slog.DiscardHandler), topology: &Topology{}, client: client, repartition: map[string]bool{tp.Topic: true}}
	a.cfg.ApplicationID = "app"
	th := newThread(a, 1)
	th.purgeable[tp] = kafka.Offset{Offset: 0}
	for _, tc := range []struct {
		after time.Duration
		purge bool
	}{{0, false}, {a.cfg.RepartitionPurgeInterval - time.Millisecond, false}, {a.cfg.RepartitionPurgeInterval, true}} {
		before := th.lastPurge
		if err := th.purge(t.Context(), time.Now().Add(tc.after)); err != nil {
			t.Fatal(err)
		}
		th.background.Wait()
		if purged := th.lastPurge != before; purged != tc.purge {
			t.Errorf("%s after the start: purged %t, want %t", tc.after, purged, tc.purge)
		}
	}
}
