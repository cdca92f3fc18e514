package instance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/feed"
	"github.com/windowed-order-counter/lab/internal/args"
	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

func TestConfigureCrash(t *testing.T) {
	w, err := workspace.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const eos = "processing.guarantee=exactly_once_v2"
	for name, tt := range map[string]struct {
		properties []string
		want       Crash
		says       string // of a usage error
	}{
		"none":                  {nil, Crash{}, ""},
		"a point":               {[]string{"lab.crash.at=before-offset-commit"}, Crash{At: streams.StageBeforeOffsetCommit}, ""},
		"a point of a later":    {[]string{"lab.crash.commit=3", "lab.crash.at=in-transaction", eos}, Crash{streams.StageInTransaction, 3}, ""},
		"a commit without one":  {[]string{"lab.crash.commit=3"}, Crash{}, "it needs lab.crash.at, one of [caches-not-flushed "},
		"no commit":             {[]string{"lab.crash.at=before-offset-commit", "lab.crash.commit=0"}, Crash{}, `"0" is not the number of a commit`},
		"a misspelt point":      {[]string{"lab.crash.at=before-ofset-commit"}, Crash{}, `did you mean "before-offset-commit"?`},
		"a misspelt property":   {[]string{"lab.crash.comit=3"}, Crash{}, `did you mean "lab.crash.commit"?`},
		"a transaction's point": {[]string{"lab.crash.at=after-end-transaction"}, Crash{}, "is a point of exactly_once_v2 only"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := Configure(w, "a", tt.properties)
			var usage *args.UsageError
			switch {
			case tt.says == "" && (err != nil || cfg.Crash != tt.want):
				t.Errorf("%+v, error %v", cfg.Crash, err)
			case tt.says != "" && (!errors.As(err, &usage) || !strings.Contains(err.Error(), tt.says)):
				t.Errorf("error %v, want %q", err, tt.says)
			}
		})
	}
}

// An order and what the topics hold of it.
func orderOf(id, store string, status feed.Status) []byte {
	return fmt.Appendf(nil, `{"orderId":%q,"storeId":%q,"status":%q,"amount":5000,"occurredAt":1789207200000}`, id, store, status.String())
}

var (
	ord1      = orderOf("ord-1", "store-a", feed.Placed)
	ord2      = orderOf("ord-2", "store-b", feed.Cancelled)
	ord3      = orderOf("ord-3", "store-a", feed.Placed)
	ord4      = orderOf("ord-4", "store-b", feed.Placed)
	noOrder   = []byte("no order")
	storeOf   = map[string]string{string(ord1): "store-a", string(ord3): "store-a", string(ord4): "store-b"}
	allOrders = [][]byte{ord1, ord2, ord3, noOrder, ord4}
)

// What comes again after a crash follows from what is in the topics between the committed offsets and the positions, and from what readers of
// committed records see there.
func TestPredict(t *testing.T) {
	type span struct{ committed, position int64 }
	bootstrap := brokertest.Start(t)
	for name, tt := range map[string]struct {
		guarantee streams.Guarantee
		orders    [][]byte // the input's one partition
		sent      [][]byte // the repartition topic's
		counted   []string // keys in the changelog
		open      bool     // what is in the last two, after the first record of each, is in an open transaction
		order     span     // in flight
		record    span
		change    span
		want      []journal.Excess
	}{
		"orders have arrived and are not counted": {
			guarantee: streams.AtLeastOnce, orders: allOrders, sent: [][]byte{ord1, ord3, ord4}, counted: []string{"store-a"},
			order: span{1, 5}, record: span{1, 2}, change: span{1, 1},
			want: []journal.Excess{{Store: "store-a", Orders: 1, OrdersAgain: 1, Records: 1}, {Store: "store-b", Orders: 1, OrdersAgain: 1}},
		},
		"one has not arrived": {
			guarantee: streams.AtLeastOnce, orders: allOrders, sent: [][]byte{ord1, ord3}, counted: []string{"store-a"},
			order: span{1, 5}, record: span{1, 2}, change: span{1, 1},
			want: []journal.Excess{{Store: "store-a", Orders: 1, OrdersAgain: 1, Records: 1}, {Store: "store-b", Orders: 1}},
		},
		"what is counted is in the changelog of one store": {
			guarantee: streams.AtLeastOnce, orders: allOrders, sent: [][]byte{ord1, ord3, ord4}, counted: []string{"store-a", "store-b", "store-a"},
			order: span{5, 5}, record: span{1, 3}, change: span{2, 3},
			want: []journal.Excess{{Store: "store-a", Records: 1, RecordsAgain: 1}, {Store: "store-b", Records: 1}},
		},
		"an order twice, once arrived": {
			guarantee: streams.AtLeastOnce, orders: [][]byte{ord4, ord4}, sent: [][]byte{ord4},
			order: span{0, 2}, record: span{0, 0}, change: span{0, 0},
			want: []journal.Excess{{Store: "store-b", Orders: 2, OrdersAgain: 1}},
		},
		"the copy of an earlier crash, committed": {
			guarantee: streams.AtLeastOnce, orders: [][]byte{ord4}, sent: [][]byte{ord4},
			order: span{0, 1}, record: span{1, 1}, change: span{0, 0},
			want: []journal.Excess{{Store: "store-b", Orders: 1}},
		},
		"all of it in an open transaction": {
			guarantee: streams.ExactlyOnce, orders: allOrders, sent: [][]byte{ord1, ord3, ord4}, counted: []string{"store-a", "store-a"}, open: true,
			order: span{1, 5}, record: span{0, 1}, change: span{1, 2},
			want: []journal.Excess{{Store: "store-a", Orders: 1, Records: 1}, {Store: "store-b", Orders: 1}},
		},
		"all of it committed": {
			guarantee: streams.AtLeastOnce, orders: allOrders, sent: [][]byte{ord1, ord3, ord4}, counted: []string{"store-a", "store-b"},
			order: span{5, 5}, record: span{3, 3}, change: span{0, 2}, want: []journal.Excess{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			t.Cleanup(cancel)
			client, err := kafka.New(ctx, kafka.Config{Seeds: strings.Split(bootstrap, ",")})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			app := fmt.Sprintf("predict-%d", time.Now().UnixNano())
			cfg := Config{Topics: topology.Options{Prefix: app + "."}, Streams: streams.Config{ApplicationID: app, ProcessingGuarantee: tt.guarantee}}
			placed, sent, changelog := app+"."+topology.OrdersPlaced, app+"-"+topology.Repartition, app+"-"+topology.PerStoreChangelog
			var specs []kafka.TopicSpec
			for _, name := range []string{placed, sent, changelog} {
				specs = append(specs, kafka.TopicSpec{Name: name, Partitions: 1, Replication: -1})
			}
			if _, err := client.CreateTopics(ctx, specs); err != nil {
				t.Fatal(err)
			}
			plain, err := client.NewProducer(ctx, kafka.ProducerConfig{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = plain.Close(ctx) }()
			later := plain
			if tt.open {
				later, err = client.NewProducer(ctx, kafka.ProducerConfig{TransactionalID: app, TransactionTimeout: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = later.Abort(ctx); _ = later.Close(ctx) }()
			}
			send := func(p *kafka.Producer, topic string, key, value []byte) {
				t.Helper()
				err := p.Send(ctx, kafka.Message{Topic: topic, Timestamp: 1789207200000, Key: key, Value: value})
				if err == nil {
					err = p.Flush(ctx)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, o := range tt.orders {
				send(plain, placed, []byte("key"), o)
			}
			by := func(i int) *kafka.Producer {
				if i == 0 {
					return plain
				}
				return later
			}
			for i, o := range tt.sent {
				send(by(i), sent, []byte(storeOf[string(o)]), o)
			}
			for i, key := range tt.counted {
				send(by(i), changelog, []byte(key), []byte("count"))
			}
			in := func(topic, store string, s span) streams.InFlight {
				return streams.InFlight{
					TopicPartition: streams.TopicPartition{Topic: topic}, Store: store, Committed: s.committed, Position: s.position,
				}
			}
			got, err := predict(ctx, client, cfg, []streams.InFlight{
				in(placed, "", tt.order), in(sent, "", tt.record), in(changelog, "orders-per-store", tt.change),
				in(topology.OrdersStatus, "", span{0, 2}), // of no interest, and not even there
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("prediction (-want +got):\n%s", diff)
			}
		})
	}
}

const repartition = "app-orders-by-store-repartition"

// A crash in a commit that has counted nothing shows nothing: such commits are not counted, unless the thread has no task that counts.
func TestCommitsOfCounts(t *testing.T) {
	of := func(topic string, processed int64) streams.InFlight {
		return streams.InFlight{TopicPartition: streams.TopicPartition{Topic: topic}, Processed: processed}
	}
	for name, tt := range map[string]struct {
		at       streams.Stage
		inFlight []streams.InFlight
		want     bool
	}{
		"orders alone":            {streams.StageBeforeOffsetCommit, []streams.InFlight{of("orders.placed", 9), of(repartition, 0)}, false},
		"orders and a count":      {streams.StageBeforeOffsetCommit, []streams.InFlight{of("orders.placed", 9), of(repartition, 7)}, true},
		"one of two tasks":        {streams.StageBeforeOffsetCommit, []streams.InFlight{of(repartition, 0), of(repartition, 1)}, true},
		"no task of that stage":   {streams.StageBeforeOffsetCommit, []streams.InFlight{of("orders.placed", 9)}, true},
		"another application's":   {streams.StageBeforeOffsetCommit, []streams.InFlight{of("ap-orders-by-store-repartition", 0)}, true},
		"half of a transaction":   {streams.StageInTransaction, []streams.InFlight{of(repartition, 0), of(repartition, 1)}, false},
		"both parts of one":       {streams.StageInTransaction, []streams.InFlight{of(repartition, 3), of(repartition, 1)}, true},
		"all that the thread has": {streams.StageInTransaction, []streams.InFlight{of("orders.placed", 9), of(repartition, 1)}, true},
	} {
		cfg := Config{Streams: streams.Config{ApplicationID: "app"}, Crash: Crash{At: tt.at}}
		if got := cfg.counts(tt.inFlight); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
