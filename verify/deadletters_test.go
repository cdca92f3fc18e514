package verify

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/windowed-order-counter/lab/internal/kafka"
)

const deadLetterTopic = "order-counter-dead-letters"

// append adds a record to the end of a partition and returns its offset.
func (m *memory) append(topic string, partition int, r kafka.Record) int64 {
	p := m.partition(topic, partition)
	r.Offset = p.end
	p.end++
	p.records = append(p.records, r)
	return r.Offset
}

// bury puts a record of orders.placed among the dead letters.
func (m *memory) bury(partition int, offset int64, kind string) {
	m.append(deadLetterTopic, 0, kafka.Record{Timestamp: 1, Headers: []kafka.Header{
		{Key: headerOffset, Value: []byte("12345")}, // the record brought it
		{Key: headerKind, Value: []byte(kind)},
		{Key: headerTopic, Value: []byte(topicPlaced)},
		{Key: headerPartition, Value: []byte(strconv.Itoa(partition))},
		{Key: headerOffset, Value: []byte(strconv.FormatInt(offset, 10))},
	}})
}

const bigOrder = `{"orderId":"o-big","storeId":"store-17","status":"PLACED","amount":100000,"occurredAt":1789207200500,"pad":"x"}`

// What is among the dead letters need not have been counted, and must be no order that could have been.
func TestDeadLettersAreTakenIntoAccount(t *testing.T) {
	const notDecoded = "value cannot be decoded: truncated"
	bad := kafka.Record{Timestamp: 1, Value: []byte(`{"orderId":"x"`)}
	big := kafka.Record{Timestamp: 1, Value: []byte(bigOrder)}
	tests := map[string]struct {
		change func(m *memory)
		commit bool // the application has done all of its input
		want   Verdict
		says   []string
	}{
		"bad records, all set aside": {
			func(m *memory) {
				for p := range 3 {
					m.bury(p, m.append(topicPlaced, p, bad), notDecoded)
				}
			}, true, Pass,
			[]string{"PASS     dead letters ", "3 value cannot be decoded: truncated", "orders.placed partition 2 offset", "3 records are no orders"},
		},
		"set aside twice, after a crash": {
			func(m *memory) {
				at := m.append(topicPlaced, 0, bad)
				m.bury(0, at, notDecoded)
				m.bury(0, at, notDecoded)
			}, true, Pass,
			[]string{"1 value cannot be decoded: truncated"},
		},
		"bad record lost": {
			func(m *memory) {
				m.bury(0, m.append(topicPlaced, 0, bad), notDecoded)
				m.append(topicPlaced, 0, bad)
			}, true, Fail,
			[]string{"FAIL     dead letters ", "and it is not among the dead letters"},
		},
		"bad record not met yet": {
			func(m *memory) { m.append(topicPlaced, 0, bad) }, false, Unknown,
			[]string{"UNKNOWN  dead letters ", "has not committed all its input"},
		},
		"an order set aside without a reason": {
			func(m *memory) { m.bury(0, 0, notDecoded) }, true, Fail,
			[]string{"orders.placed partition 0 offset 0 is an order (", "and it is among the dead letters: value cannot be decoded: truncated"},
		},
		"an order all of whose results were refused": {
			func(m *memory) { m.bury(1, m.append(topicPlaced, 1, big), kindRefused) }, true, Pass,
			[]string{"1 output refused by the broker"},
		},
		"an order one of whose results was refused": {
			func(m *memory) {
				m.bury(1, m.append(topicPlaced, 1, big), kindRefused)
				m.append(topicHighValue, 1, kafka.Record{Timestamp: 1789207200500, Key: []byte("store-17"), Value: []byte("100000")})
			}, true, Pass,
			[]string{"1 output refused by the broker"},
		},
		"a result of many records, a record of another topic, a record by hand": {
			func(m *memory) {
				m.bury(1, -1, kindRefused)
				m.append(deadLetterTopic, 0, kafka.Record{Value: []byte("hello")})
				m.append(deadLetterTopic, 0, kafka.Record{Headers: []kafka.Header{
					{Key: headerTopic, Value: []byte(topicStatus)}, {Key: headerPartition, Value: []byte("0")}, {Key: headerOffset, Value: []byte("0")},
				}})
			}, true, Pass,
			[]string{"1 results that no broker took", "1 records of orders.status", "order-counter-dead-letters partition 0 offset 1 is no dead letter"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := golden(t)
			tt.change(m)
			if tt.commit {
				m.commitAll()
			}
			r, text := grade(t, m, Options{Phases: []int{1, 2}})
			if r.Verdict() != tt.want {
				t.Errorf("verdict %s, want %s:\n%s", r.Verdict(), tt.want, text)
			}
			for _, says := range tt.says {
				if !strings.Contains(text, says) {
					t.Errorf("does not say %q:\n%s", says, text)
				}
			}
		})
	}
}

// Very many of them are named by a few.
func TestManyDeadLetters(t *testing.T) {
	m := golden(t)
	for range 100 {
		m.bury(0, m.append(topicPlaced, 0, kafka.Record{Timestamp: 1, Value: []byte("hello")}), "value cannot be decoded: not a JSON object")
	}
	m.commitAll()
	r, text := grade(t, m, Options{Phases: []int{1}})
	if r.Verdict() != Pass {
		t.Errorf("verdict %s:\n%s", r.Verdict(), text)
	}
	want := fmt.Sprintf("%d more of orders.placed: lab dump order-counter-dead-letters --decode", 100-maxNamed)
	if !strings.Contains(text, want) {
		t.Errorf("does not say %q:\n%s", want, text)
	}
}
