package topology_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/streams"
	"github.com/windowed-order-counter/lab/topology"
)

// BenchmarkTakeover kills the owner of a task whose store has b.N keys with SIGKILL, and measures until the group has noticed (detection-s)
// and from then until the other instance works on all tasks (takeover-s): with a standby, and without, where it restores the store. Run it
// with -benchtime=1000000x. Both instances are processes of their own; an embedded broker is in this one and takes its share of the machine.
func BenchmarkTakeover(b *testing.B) {
	for _, guarantee := range []streams.Guarantee{streams.AtLeastOnce, streams.ExactlyOnce} {
		for standbys, name := range []string{"restore", "standby"} {
			b.Run(fmt.Sprintf("%s/%s", guarantee, name), func(b *testing.B) { benchTakeover(b, guarantee, standbys) })
		}
	}
}

// fillChangelog makes a changelog of counts with n keys, which come in another order than theirs.
func (l *lab) fillChangelog(topic string, n int, partition func(key []byte) int32) {
	l.t.Helper()
	if _, err := l.client.CreateTopics(l.ctx, []kafka.TopicSpec{{Name: topic, Partitions: topology.RepartitionPartitions, Replication: -1,
		Configs: []kafka.ConfigEntry{{Name: "cleanup.policy", Value: "compact"}}}}); err != nil {
		l.t.Fatal(err)
	}
	p, err := l.client.NewProducer(l.ctx, kafka.ProducerConfig{Linger: -1})
	if err != nil {
		l.t.Fatal(err)
	}
	for i := range n {
		key := fmt.Appendf(nil, "store-%d", uint32(i)*2654435761)
		if err := p.Send(l.ctx, kafka.Message{Topic: topic, Partition: partition(key), Timestamp: flowBase, Key: key,
			Value: binary.BigEndian.AppendUint64(nil, uint64(i))}); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := p.Close(l.ctx); err != nil {
		l.t.Fatal(err)
	}
}

func benchTakeover(b *testing.B, guarantee streams.Guarantee, standbys int) {
	l := newLabAnywhere(b, 15*time.Minute, shortSessions())
	changelog := l.internal(topology.PerStoreChangelog)
	l.fillChangelog(changelog, b.N, func([]byte) int32 { return 0 }) // all of one task
	properties := []string{fmt.Sprint("num.standby.replicas=", standbys), "processing.guarantee=" + string(guarantee)}
	owner := l.process(b, "owner", b.TempDir(), properties...)
	owner.next("state RUNNING")
	if err := l.flow().send(600, 100, time.Millisecond); err != nil { // so that the group has offsets
		b.Fatal(err)
	}
	l.awaitLag()
	other := l.process(b, "other", b.TempDir(), properties...)
	if standbys > 0 {
		other.next(fmt.Sprintf("caught up %s-0", changelog))
	} else {
		other.next("state RUNNING")
	}

	b.ResetTimer()
	killed := time.Now()
	owner.kill()
	l.awaitMembers(1)
	detected := time.Now()
	for {
		line := other.next("restore "+changelog+"-0", "state RUNNING")
		if strings.HasPrefix(line, "state") {
			break
		}
		b.Log(line)
	}
	b.ReportMetric(detected.Sub(killed).Seconds(), "detection-s")
	b.ReportMetric(time.Since(detected).Seconds(), "takeover-s")
	b.ReportMetric(0, "ns/op")
	b.StopTimer()
	other.end()
}

// next waits for a line that begins with one of the prefixes, for as long as a large restore may take on a busy machine.
func (i *instance) next(prefixes ...string) string {
	i.t.Helper()
	const within = 5 * time.Minute
	limit := time.After(within)
	for {
		select {
		case line, ok := <-i.lines:
			if !ok {
				i.t.Fatalf("the instance ended before it said %q", prefixes)
			}
			for _, prefix := range prefixes {
				if strings.HasPrefix(line, prefix) {
					return line
				}
			}
		case <-limit:
			i.t.Fatalf("none of %q within %s", prefixes, within)
		}
	}
}
