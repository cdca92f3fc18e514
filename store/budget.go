package store

// Budget bounds the memory of the overlays of all tasks of a stream thread, as statestore.cache.max.bytes divided by the
// number of threads does in Kafka Streams. Clean entries, which Bolt holds too, only use what dirty ones leave free and
// are evicted, least recently used first, when an entry needs the room. Dirty entries are never evicted: Over tells the
// thread to commit early, between two records.
//
// A Budget is not safe for concurrent use.
type Budget struct {
	max, dirty, clean int64
	lru               list // clean entries of all stores, least recently used first
}

// NewBudget returns a budget of max bytes. With 0 every put is over budget.
func NewBudget(max int64) *Budget { return &Budget{max: max} }

// Used is the size of all entries, dirty and clean, in bytes.
func (b *Budget) Used() int64 { return b.dirty + b.clean }

// Over reports whether the uncommitted entries alone exceed the budget.
func (b *Budget) Over() bool { return b.dirty > b.max }

func (b *Budget) trim() {
	for b.Used() > b.max && b.lru.front != nil {
		e := b.lru.front
		e.owner.discard(e)
	}
}
