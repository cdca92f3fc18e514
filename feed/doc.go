// Package feed is the lab's input: the order and its JSON form, the 300 events of a feed, the rows of the status table, and their producer.
package feed

// The topics that the feed and the lab's other orders go to.
const (
	OrdersPlaced = "orders.placed" // key order id, value the order's JSON
	OrdersStatus = "orders.status" // key order id, value the status as plain text; compacted
)
