// Package verify grades a run of the lab from what stands in the topics, by an oracle that shares no code with the engine, the topology or
// the feed: it reads the orders with encoding/json, knows the lab's topics by its own list, and counts with its own arithmetic. A fault in
// one of those packages can then not hide by being made here again.
//
// A phase is a file (phase1.go to phase6.go) with a function that turns an oracle's figures and a topic's contents into checks. Each check has
// one of three verdicts: PASS, FAIL (the topics contradict the oracle) and UNKNOWN (the topics cannot tell: input missing, records deleted,
// work not done yet, no broker). Journals, offsets of the group and the like may explain a verdict or soften FAIL to UNKNOWN; they never make
// a PASS.
// Local state is compared with the topics where a folder of it is named (state.go), and decides nothing else.
//
// Memory grows with the number of keys (stores, amounts, minutes), not with the number of records: contents are compared by count and by a
// digest that does not depend on the order. Only to name the records of a difference are they looked at one by one, in a second pass.
package verify
