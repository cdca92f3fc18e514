package phases

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/internal/connect"
	"github.com/windowed-order-counter/lab/internal/console"
	"github.com/windowed-order-counter/lab/internal/journal"
	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/internal/kafkatools"
	"github.com/windowed-order-counter/lab/internal/workspace"
	"github.com/windowed-order-counter/lab/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watchRun is a run on a broker of its own, with a watch and the journal of an instance.
func watchRun(t *testing.T) (*run, *watch, *journal.Writer) {
	t.Helper()
	bootstrap := brokertest.Bootstrap(brokertest.Embedded(t, brokertest.Topics(3, topology.OrdersPlaced, topology.OrdersPerStoreMinute)))
	client, err := kafka.New(t.Context(), kafka.Config{Seeds: strings.Split(bootstrap, ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	w, err := workspace.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &run{
		Config: Config{Workspace: w, Console: console.New(console.Config{Out: io.Discard})}, conn: &connect.Conn{Client: client},
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	j, err := journal.Create(journal.Path(w.Journals(), topology.ApplicationID, "b", 1), topology.ApplicationID, "b", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return r, r.watch(&counter{name: "a"}), j
}

func sendMinute(t *testing.T, r *run, key, value string) {
	t.Helper()
	m := kafka.Message{
		Topic: topology.OrdersPerStoreMinute, Partition: kafka.AnyPartition, Timestamp: firstBase.UnixMilli(),
		Key: []byte(key), Value: []byte(value),
	}
	if err := kafkatools.Send(t.Context(), r.conn.Client, m); err != nil {
		t.Fatal(err)
	}
}

// A consumer that starts at the end shows what comes after it was ready and nothing before; one from the beginning shows all.
func TestConsumer(t *testing.T) {
	r, w, _ := watchRun(t)
	sendMinute(t, r, "store-17|2026-09-12T10:00:00Z", "50")
	whole, err := r.consume(t.Context(), topology.OrdersPerStoreMinute, false)
	if err != nil {
		t.Fatal(err)
	}
	defer whole.stop()
	if rows, err := whole.seen(); err != nil || len(rows) != 1 {
		t.Errorf("ready with %v, %v", rows, err)
	}
	w.consumer, err = r.consume(t.Context(), topology.OrdersPerStoreMinute, true)
	if err != nil {
		t.Fatal(err)
	}
	sendMinute(t, r, "store-17|2026-09-12T10:00:00Z", "51")
	found := -1
	err = w.await(t.Context(), "51", func() bool {
		found = w.row(0, "store-17|2026-09-12T10:00:00Z", 51)
		return found >= 0
	})
	if want := []outputRow{{"store-17|2026-09-12T10:00:00Z", "51"}}; err != nil || found != 0 || !slices.Equal(w.rows, want) {
		t.Errorf("row %d of %v, %v", found, w.rows, err)
	}
	if at := w.row(1, "store-17|2026-09-12T10:00:00Z", 51); at >= 0 {
		t.Errorf("found again at %d", at)
	}
	if _, err := r.consume(t.Context(), "analytics.orders-per-store-minut", true); err == nil || !strings.Contains(err.Error(), "did you mean") {
		t.Errorf("no such topic: %v", err)
	}
}

// What did not come is named with the last lines of the instances, and of all of them: any may own the task.
func TestAwaitTellsWhatDidNotCome(t *testing.T) {
	_, w, j := watchRun(t)
	j.Write(&journal.TableApplied{Key: "ord-1042", Value: "PAID"})
	err := w.await(t.Context(), "a row", func() bool {
		return w.event(0, func(e *journal.Event) bool { return e.TableApplied != nil }) != nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if e := w.event(1, func(*journal.Event) bool { return true }); e != nil {
		t.Errorf("one event, and after it %+v", e)
	}
	j.Write(&journal.Joined{Key: "ord-1042", Value: "PAID|{}"})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("instance a has ended")
	cancel(gone)
	err = w.await(ctx, "ord-2004 to be dropped", func() bool { return false })
	var wait *journal.WaitError
	if !errors.As(err, &wait) || !errors.Is(err, gone) || !slices.Contains(wait.Last, "joined ord-1042=PAID|{}") {
		t.Errorf("got %v", err)
	}
}

// The orders sent by hand are those of the lab.
func TestByHand(t *testing.T) {
	orders := map[string]string{
		string(nextMinute.Message(firstBase).Value):   `{"orderId":"ord-2001","storeId":"store-17","status":"PLACED","amount":5000,"occurredAt":1789207265000}`,
		string(lateInGrace.Message(firstBase).Value):  `{"orderId":"ord-2002","storeId":"store-17","status":"PLACED","amount":5000,"occurredAt":1789207230000}`,
		string(jumpAhead.Message(firstBase).Value):    `{"orderId":"ord-2003","storeId":"store-17","status":"PLACED","amount":5000,"occurredAt":1789207380000}`,
		string(tooLate.Message(firstBase).Value):      `{"orderId":"ord-2004","storeId":"store-17","status":"PLACED","amount":5000,"occurredAt":1789207245000}`,
		string(whilePaid.Message(firstBase).Value):    `{"orderId":"ord-1042","storeId":"store-17","status":"PLACED","amount":5000,"occurredAt":1789207410000}`,
		string(whileShipped.Message(firstBase).Value): `{"orderId":"ord-1042","storeId":"store-17","status":"PLACED","amount":5000,"occurredAt":1789207420000}`,
		string(noStatus.Message(firstBase).Value):     `{"orderId":"ord-2005","storeId":"store-17","status":"PLACED","amount":5000,"occurredAt":1789207430000}`,
	}
	for got, want := range orders {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := minuteKey(lateInGrace); got != "store-17|2026-09-12T10:00:00Z" {
		t.Error(got)
	}
}

// An order that is in the topic already is not sent again, and neither is a status that is the current one.
func TestSendOnce(t *testing.T) {
	r, _, _ := watchRun(t)
	for i, want := range []bool{true, false} {
		if sent, err := r.send(t.Context(), tooLate); err != nil || sent != want {
			t.Errorf("time %d: sent %t, %v", i, sent, err)
		}
	}
	// The same id at another time is another order.
	if sent, err := r.send(t.Context(), byHand(tooLate.OrderID, time.Hour)); err != nil || !sent {
		t.Errorf("another: sent %t, %v", sent, err)
	}
	began := time.Now()
	since, err := r.since(t.Context(), began.Add(time.Hour), tooLate, nextMinute)
	if err != nil || since.After(began) {
		t.Errorf("since %s, %v", since, err)
	}
}
