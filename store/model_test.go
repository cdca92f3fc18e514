package store

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// modelRow is a value and its timestamp.
type modelRow struct {
	value string
	ts    int64
}

// model is a store in the plainest form: what Bolt should hold, what readers should see, what a flush should report. A
// window is keyed by its changelog key.
type model struct {
	window    bool
	committed map[string]modelRow
	current   map[string]modelRow
	logged    map[string]bool // keys for which the changelog has a value, uncommitted flushes included
	pending   []string        // dirty keys in the order of their last update
	last      map[string]*modelRow
	max, cmax int64
}

func newModel(window bool) *model {
	return &model{
		window: window, max: -1, cmax: -1,
		committed: map[string]modelRow{}, current: map[string]modelRow{}, logged: map[string]bool{}, last: map[string]*modelRow{},
	}
}

func (m *model) hidden(key string) bool {
	return m.window && windowStart(key) < m.max-retention.Milliseconds()+1
}

func (m *model) dead(key string) bool {
	return m.window && windowStart(key)/minute < (m.max-retention.Milliseconds())/minute
}

func (m *model) get(key string) (modelRow, bool) {
	row, ok := m.current[key]
	return row, ok && !m.hidden(key)
}

func (m *model) advance(key string) {
	if m.window {
		m.max = max(m.max, windowStart(key))
	}
}

func (m *model) put(key string, row *modelRow) {
	m.advance(key)
	m.apply(key, row)
	m.pending = append(slices.DeleteFunc(m.pending, func(k string) bool { return k == key }), key)
	m.last[key] = row
}

func (m *model) apply(key string, row *modelRow) {
	if row == nil {
		delete(m.current, key)
	} else {
		m.current[key] = *row
	}
}

func (m *model) flush() (changes []string) {
	for _, key := range m.pending {
		row := m.last[key]
		c := Change{Key: []byte(key), Deleted: row == nil, Timestamp: -1}
		if row == nil && (m.hidden(key) || !m.logged[key]) {
			m.logged[key] = false
			continue
		}
		if row != nil {
			c.Value, c.Timestamp = []byte(row.value), row.ts
		}
		m.logged[key] = row != nil
		changes = append(changes, renderChange(c))
	}
	m.pending, m.last = nil, map[string]*modelRow{}
	return changes
}

func (m *model) commit() {
	maps.DeleteFunc(m.current, func(key string, _ modelRow) bool { return m.dead(key) })
	m.committed = maps.Clone(m.current)
	m.cmax = m.max
	m.relog()
}

func (m *model) rollback() {
	m.current = maps.Clone(m.committed)
	m.max = m.cmax
	m.pending, m.last = nil, map[string]*modelRow{}
	m.relog()
}

func (m *model) relog() {
	m.logged = map[string]bool{}
	for key := range m.current {
		m.logged[key] = true
	}
}

func (m *model) rows() []string {
	got := []string{}
	for _, key := range slices.Sorted(maps.Keys(m.current)) {
		if row, ok := m.get(key); ok {
			got = append(got, fmt.Sprintf("%q=%q@%d", key, row.value, row.ts))
		}
	}
	return got
}

// modelRun drives a DB and its models through the same operations.
type modelRun struct {
	t        *testing.T
	r        *rand.Rand
	dir      string
	db       *DB
	budget   *Budget
	kv, win  *model
	position int64
	boot     int
	log      []string
}

// Random operations on both stores under a random budget agree with a plain map, across commits, rollbacks, restores,
// kills, clean and unclean restarts of the machine.
func TestModel(t *testing.T) {
	runs, ops := 30, 400
	if testing.Short() {
		runs = 10
	}
	for i := range runs {
		seed := uint64(i)
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			m := &modelRun{
				t: t, r: r, dir: t.TempDir(), kv: newModel(false), win: newModel(true),
				budget: NewBudget([]int64{0, 300, 2000, 1 << 20}[r.IntN(4)]),
			}
			defer func() {
				if t.Failed() {
					t.Logf("operations:\n%s", strings.Join(m.log[max(0, len(m.log)-40):], "\n"))
				}
			}()
			m.open()
			for range ops {
				m.step()
				if t.Failed() {
					return
				}
			}
			noError(t, m.db.Close())
			if m.budget.Used() != 0 {
				t.Errorf("a closed DB uses %d bytes", m.budget.Used())
			}
		})
	}
}

func (m *modelRun) logf(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func (m *modelRun) open() {
	m.db = mustOpen(m.t, m.dir, Options{Budget: m.budget, Strict: true, BootID: bootID(fmt.Sprint(m.boot))})
}

func (m *modelRun) key() string {
	return []string{"", "a", "b", "ab", "a\x00", "c", "\xff"}[m.r.IntN(7)]
}

// start is a window start about the largest so far, seldom far ahead of it.
func (m *modelRun) start() int64 {
	around := max(m.win.max, 0)
	if m.r.IntN(40) == 0 {
		return around + int64(m.r.IntN(6*minute))
	}
	return max(0, around-3*minute+int64(m.r.IntN(13))*minute/4)
}

func (m *modelRun) row() *modelRow {
	if m.r.IntN(4) == 0 {
		return nil
	}
	return &modelRow{value: strings.Repeat("v", m.r.IntN(12)), ts: int64(m.r.IntN(100))}
}

func (row *modelRow) put(fn func(value []byte, ts int64) error) error {
	if row == nil {
		return fn(nil, -1)
	}
	return fn([]byte(row.value), row.ts)
}

func (m *modelRun) step() {
	switch n := m.r.IntN(100); {
	case n < 30:
		key, row := m.key(), m.row()
		m.logf("put %q %v", key, row)
		m.kv.put(key, row)
		noError(m.t, row.put(func(value []byte, ts int64) error { return m.db.KeyValue(kvName).Put([]byte(key), value, ts, nil) }))
	case n < 60:
		key, start, row := m.key(), m.start(), m.row()
		m.logf("put window %q %d %v", key, start, row)
		m.win.put(string(WindowKey(nil, []byte(key), start)), row)
		noError(m.t, row.put(func(value []byte, ts int64) error {
			return m.db.Window(winName).Put([]byte(key), start, value, ts, nil)
		}))
	case n < 70:
		m.get()
	case n < 80:
		m.logf("flush")
		m.flush()
	case n < 90:
		m.logf("commit")
		if len(m.kv.pending)+len(m.win.pending) > 0 {
			if err := m.db.Commit(Commit{}); !errors.Is(err, ErrUnflushed) {
				m.t.Errorf("commit without a flush = %v", err)
			}
		}
		m.flush()
		m.position++
		noError(m.t, m.db.Commit(Commit{
			Positions:   map[string]Position{kvName: {Next: m.position}, winName: {Next: m.position}},
			StreamTimes: map[string]int64{"t": m.position},
			At:          time.UnixMilli(m.position),
		}))
		m.kv.commit()
		m.win.commit()
	case n < 93:
		m.logf("rollback")
		m.db.Rollback()
		m.kv.rollback()
		m.win.rollback()
	case n < 95:
		m.restore()
	default:
		m.restart()
	}
	m.compare()
}

func (m *modelRun) get() {
	key, start := m.key(), m.start()
	m.logf("get %q, %d", key, start)
	check := func(what string, want modelRow, found bool, value []byte, ts int64, ok bool, err error) {
		m.t.Helper()
		noError(m.t, err)
		if got := (modelRow{string(value), ts}); ok != found || ok && got != want {
			m.t.Errorf("%s: got %v, %v; want %v, %v", what, got, ok, want, found)
		}
	}
	want, found := m.kv.get(key)
	value, ts, ok, err := m.db.KeyValue(kvName).Get([]byte(key))
	check("get "+key, want, found, value, ts, ok, err)

	want, found = m.win.get(string(WindowKey(nil, []byte(key), start)))
	value, ts, ok, err = m.db.Window(winName).Get([]byte(key), start)
	check(fmt.Sprint("get window ", key, start), want, found, value, ts, ok, err)
}

func (m *modelRun) flush() {
	want := append(m.kv.flush(), m.win.flush()...)
	if diff := cmp.Diff(want, flushed(m.t, m.db)); diff != "" {
		m.t.Errorf("flush (-want +got):\n%s", diff)
	}
}

func (m *modelRun) restore() {
	m.logf("restore")
	m.db.Rollback()
	m.kv.rollback()
	m.win.rollback()
	var kv, win []Entry
	entry := func(key string, row *modelRow) Entry {
		e := Entry{Key: []byte(key), Timestamp: -1}
		if row != nil {
			e.Value, e.Timestamp = []byte(row.value), row.ts
		}
		return e
	}
	for range m.r.IntN(5) {
		key, row := m.key(), m.row()
		kv = append(kv, entry(key, row))
		m.kv.apply(key, row)
	}
	windowKeys, windowValues := []string{}, []*modelRow{}
	for range m.r.IntN(5) {
		key, row := string(WindowKey(nil, []byte(m.key()), m.start())), m.row()
		win = append(win, entry(key, row))
		windowKeys, windowValues = append(windowKeys, key), append(windowValues, row)
		m.win.advance(key)
	}
	applied := 0
	for i, key := range windowKeys {
		if !m.win.dead(key) {
			m.win.apply(key, windowValues[i])
			applied++
		}
	}
	m.kv.commit()
	m.win.commit()
	m.position++
	if n, err := m.db.Restore(kvName, kv, Position{Next: m.position}); err != nil || n != len(kv) {
		m.t.Errorf("restore applied %d of %d: %v", n, len(kv), err)
	}
	if n, err := m.db.Restore(winName, win, Position{Next: m.position}); err != nil || n != applied {
		m.t.Errorf("window restore applied %d, not %d: %v", n, applied, err)
	}
}

// restart ends the run in one of the ways there are.
func (m *modelRun) restart() {
	m.kv.rollback()
	m.win.rollback()
	how := m.r.IntN(10)
	m.logf("restart %d", how)
	wiped := false
	switch {
	case how < 4:
		noError(m.t, m.db.Close())
	case how < 8: // killed
		noError(m.t, m.db.Abandon())
	case how < 9: // the machine was restarted in between
		noError(m.t, m.db.Close())
		m.boot++
	default: // the machine went down
		wiped = strings.HasPrefix(m.db.mark, markOpen)
		noError(m.t, m.db.Abandon())
		m.boot++
	}
	fresh := m.position == 0 && m.db.mark == ""
	m.open()
	if wiped != (m.db.Recovered() != "") && !fresh {
		m.t.Errorf("recovered %q, wiped %v", m.db.Recovered(), wiped)
	}
	if wiped {
		m.kv, m.win, m.position = newModel(false), newModel(true), 0
	}
}

func (m *modelRun) compare() {
	m.t.Helper()
	got := []string{}
	noError(m.t, m.db.KeyValue(kvName).Range(func(key, value []byte, ts int64) bool {
		got = append(got, fmt.Sprintf("%q=%q@%d", key, value, ts))
		return true
	}))
	if diff := cmp.Diff(m.kv.rows(), got); diff != "" {
		m.t.Errorf("rows (-want +got):\n%s", diff)
	}
	got = []string{}
	noError(m.t, m.db.Window(winName).Range(func(key []byte, start int64, value []byte, ts int64) bool {
		got = append(got, fmt.Sprintf("%q=%q@%d", WindowKey(nil, key, start), value, ts))
		return true
	}))
	if diff := cmp.Diff(m.win.rows(), got); diff != "" {
		m.t.Errorf("windows (-want +got):\n%s", diff)
	}
	if got := m.db.Window(winName).MaxStart(); got != m.win.max {
		m.t.Errorf("MaxStart %d, want %d", got, m.win.max)
	}
	if got, _ := m.db.Position(winName); got.Next != m.position {
		m.t.Errorf("position %d, want %d", got.Next, m.position)
	}
	if m.db.Empty(kvName) != (len(m.kv.committed) == 0) || m.db.Empty(winName) != (len(m.win.committed) == 0) {
		m.t.Errorf("Empty: %v, %v; the model has %d and %d rows",
			m.db.Empty(kvName), m.db.Empty(winName), len(m.kv.committed), len(m.win.committed))
	}
	m.compareBudget()
}

// compareBudget adds the budget up from the entries.
func (m *modelRun) compareBudget() {
	m.t.Helper()
	var dirty, clean int64
	counts := map[entryState]int{}
	for _, t := range m.db.tables {
		for key, e := range t.overlay.entries {
			if key != e.key || e.size != e.measure() {
				m.t.Errorf("entry %q: size %d, measured %d", key, e.size, e.measure())
			}
			if counts[e.state]++; e.state == stateClean {
				clean += e.size
			} else {
				dirty += e.size
			}
		}
		if n := t.overlay.dirty.n; counts[stateDirty] != n || t.overlay.flushed.n != counts[stateFlushed] {
			m.t.Errorf("store %s: %v entries by state, lists of %d and %d", t.spec.Name, counts, n, t.overlay.flushed.n)
		}
		counts[stateDirty], counts[stateFlushed] = 0, 0
	}
	if m.budget.dirty != dirty || m.budget.clean != clean || m.budget.lru.n != counts[stateClean] {
		m.t.Errorf("budget %d dirty, %d clean in %d entries; the entries add up to %d, %d in %d",
			m.budget.dirty, m.budget.clean, m.budget.lru.n, dirty, clean, counts[stateClean])
	}
	if clean > 0 && m.budget.Used() > m.budget.max {
		m.t.Errorf("%d bytes used of %d, %d of them clean", m.budget.Used(), m.budget.max, clean)
	}
	if m.budget.Over() != (dirty > m.budget.max) {
		m.t.Errorf("Over() = %v with %d dirty bytes of %d", m.budget.Over(), dirty, m.budget.max)
	}
}
