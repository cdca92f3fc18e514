package topology

import "testing"

func TestCrashTrigger(t *testing.T) {
	tests := map[string]struct {
		record int64
		stores []string
		want   int // the index that is due, -1 for none
	}{
		"first":               {1, []string{"store-17", "store-17"}, 0},
		"third of its store":  {3, []string{"store-17", "store-18", "store-17", "store-17", "store-17"}, 3},
		"other stores only":   {1, []string{"store-18", "store-1", "store-177"}, -1},
		"not reached":         {3, []string{"store-17", "store-17"}, -1},
		"no crash asked for":  {0, []string{"store-17", "store-17"}, -1},
		"once, and not again": {2, []string{"store-17", "store-17", "store-17", "store-17"}, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := NewCrashTrigger(tt.record)
			for i, store := range tt.stores {
				if due := c.Due(store); due != (i == tt.want) {
					t.Errorf("record %d of %s: due %t", i, store, due)
				}
			}
		})
	}
}
