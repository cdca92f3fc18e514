package streams

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Members of before there were standbys can be in a group with members of now: each reads what the other says, less what it does not know.
func TestMemberInfoOfBeforeStandbys(t *testing.T) {
	old := []byte(`{"v":1,"process":"p","tasks":["0_0","1_1"],"txn":["t"],"known":["t","u"]}`)
	got, err := decodeMemberInfo(old)
	if err != nil {
		t.Fatal(err)
	}
	want := memberInfo{Version: 1, ProcessID: "p", Tasks: []string{"0_0", "1_1"}, Transactions: []string{"t"}, Known: []string{"t", "u"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want.Offsets, want.Standbys = map[string]int64{"1_1": 7}, []string{"1_0"}
	b, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	const now = `{"v":1,"process":"p","tasks":["0_0","1_1"],"offsets":{"1_1":7},"standbys":["1_0"],"txn":["t"],"known":["t","u"]}`
	if string(b) != now {
		t.Errorf("encoded as %s, want %s", b, now)
	}
}

func TestStandbysOf(t *testing.T) {
	for _, tc := range []struct {
		name, data string
		want       []TaskID
	}{
		{"standbys", `{"txn":["t"],"standbys":["1_0","0_2"]}`, []TaskID{{1, 0}, {0, 2}}},
		{"none", `{"txn":["t"]}`, nil},
		{"what is no task is passed over", `{"standbys":["1_0","x","1_0x","-1_0","1_-1","1_ 0"]}`, []TaskID{{1, 0}}},
		{"of another program", "\x00\x01", nil},
		{"empty", "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, StandbysOf([]byte(tc.data))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
