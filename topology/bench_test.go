package topology_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

// BenchmarkCatchUp counts b.N placed orders over 10,000 stores that wait on a broker in the same process: the whole engine, from fetch to the
// last commit. Run it with -benchtime=1000000x, and compare the guarantees within one run.
func BenchmarkCatchUp(b *testing.B) {
	for _, bc := range []struct {
		guarantee streams.Guarantee
		commit    time.Duration
	}{
		{streams.AtLeastOnce, time.Second},
		{streams.ExactlyOnce, time.Second},
		{streams.ExactlyOnce, 100 * time.Millisecond},
	} {
		b.Run(fmt.Sprintf("%s/%s", bc.guarantee, bc.commit), func(b *testing.B) { catchUp(b, bc.guarantee, bc.commit) })
	}
}

func catchUp(b *testing.B, guarantee streams.Guarantee, commit time.Duration) {
	const stores = 10_000
	l := newLab(b)
	l.config.ProcessingGuarantee, l.config.CommitInterval = guarantee, commit
	p, err := l.client.NewProducer(l.ctx, kafka.ProducerConfig{Linger: -1})
	if err != nil {
		b.Fatal(err)
	}
	base := int64(1789207200000)
	for i := range b.N {
		o := feed.Order{OrderID: fmt.Sprint("ord-", i), StoreID: fmt.Sprint("store-", i%stores), Status: feed.Placed, Amount: 5000, OccurredAt: base + int64(i/100)}
		if err := p.Send(l.ctx, o.Message(time.UnixMilli(base))); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Close(l.ctx); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	start := time.Now()
	stop := l.start(topology.Hooks{}, streams.Listener{})
	l.awaitLag()
	b.StopTimer()
	stop()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "orders/s")
}
