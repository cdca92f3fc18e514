package topology_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/windowed-order-counter/lab/broker/brokertest"
	"github.com/windowed-order-counter/lab/topology"
)

var errCutOff = errors.New("cut off")

// A member is cut off from its coordinator, but not from the data: nobody tells it that its tasks went to another one, and it goes on being
// given orders. Once its session is over by its own clock it sends nothing for them any more, or each would be processed by both.
func TestMemberCutOffFromCoordinator(t *testing.T) {
	cluster := brokertest.Embedded(t, shortSessions())
	l := newLabOn(t, brokertest.Bootstrap(cluster), "", topology.ApplicationID)
	l.config.SessionTimeout, l.config.HeartbeatInterval = time.Second, 100*time.Millisecond
	lonely, other := l.member("lonely"), l.member("other")
	lonely.start()
	lonely.awaitRunning()
	other.start()
	other.awaitRunning()
	lonely.awaitRunning()
	f := l.flow()
	send := func() {
		t.Helper()
		if err := f.send(600, 60, time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	send()
	l.awaitLag()

	g, err := l.client.DescribeGroup(l.ctx, l.config.ApplicationID)
	if err != nil {
		t.Fatal(err)
	}
	id := ""
	for _, m := range g.Members {
		if strings.HasPrefix(m.ClientID, "lonely-") {
			id = m.MemberID
		}
	}
	var healed atomic.Bool
	cut := func(member string) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if member == id && !healed.Load() {
			return nil, errCutOff, true // the connection breaks
		}
		return nil, nil, false
	}
	cluster.ControlKey(int16(kmsg.Heartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
		return cut(r.(*kmsg.HeartbeatRequest).MemberID)
	})
	cluster.ControlKey(int16(kmsg.JoinGroup), func(r kmsg.Request) (kmsg.Response, error, bool) {
		return cut(r.(*kmsg.JoinGroupRequest).MemberID)
	})
	l.awaitMembers(1)
	other.awaitRunning()
	send()
	l.awaitLag()
	healed.Store(true)
	lonely.awaitRunning()
	other.awaitRunning()
	send()
	l.awaitLag()
	lonely.stop()
	other.stop()
	if w := lonely.warnings(); !strings.Contains(w, "has lost its tasks") || !strings.Contains(w, "the session lasts 1s") {
		t.Errorf("the lonely member did not say what happened:\n%s", w)
	}
	f.checkExact()
}
