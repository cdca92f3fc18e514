package kafkatools

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/windowed-order-counter/lab/internal/kafka"
	"github.com/windowed-order-counter/lab/store"
	"github.com/windowed-order-counter/lab/topology"
)

// DumpConfig is a Read with the form of its rows.
type DumpConfig struct {
	ReadConfig
	PrintKey bool
	JSON     bool // one object a row
	// Last prints the last value of each key, by key, once all has been read.
	Last bool
	// Decode prints keys and values of internal topics as what they mean, dead letters with their origin and reason, and transaction markers
	// as rows of their own. Records that readers of committed ones do not get are marked, unless Follow is set: what comes of a transaction
	// is known only later.
	Decode bool
}

// Dump prints the records of a topic in the form of Kafka's console consumer: the value, or key TAB value, and null for null.
func Dump(ctx context.Context, client *kafka.Client, cfg DumpConfig, w io.Writer) error {
	cfg.Control = cfg.Decode
	out := bufio.NewWriter(w)
	p := printer{cfg: cfg, out: out}
	if cfg.Decode {
		p.key, p.value = decoders(cfg.Topic)
		if cfg.Isolation == kafka.ReadUncommitted && !cfg.Follow {
			var err error
			if p.markers, err = readMarkers(ctx, client, cfg.Topic); err != nil {
				return err
			}
		}
	}
	last := map[string]row{}
	err := Read(ctx, client, cfg.ReadConfig, func(partition int32, r *kafka.Record) error {
		row := p.row(partition, r)
		if cfg.Last {
			if row.Marker == "" {
				last[row.rawKey] = row
			}
			return nil
		}
		if err := p.print(row); err != nil {
			return err
		}
		if cfg.Follow { // someone is waiting for each row
			return out.Flush()
		}
		return nil
	})
	for _, key := range slices.Sorted(maps.Keys(last)) {
		if err := p.print(last[key]); err != nil {
			return err
		}
	}
	return errors.Join(err, out.Flush())
}

// row is one line of a dump; its JSON form is that of `dump --json`. Key and value are null, text or, if they are no UTF-8, in hexadecimal
// under another name.
type row struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Key       *string  `json:"key"`
	KeyHex    string   `json:"key_hex,omitempty"`
	Value     *string  `json:"value"`
	ValueHex  string   `json:"value_hex,omitempty"`
	Headers   []header `json:"headers,omitempty"`
	Marker    string   `json:"marker,omitempty"` // COMMIT or ABORT; key and value mean nothing then
	Hidden    fate     `json:"hidden,omitempty"` // ABORTED or OPEN: a reader of committed records does not get it, or not yet
	// DeadLetter is what is wrong with the record, in a dead-letter topic if Decode is set.
	DeadLetter *DeadLetter `json:"dead_letter,omitempty"`

	// The bytes as they came, for the plain form.
	rawKey, rawValue string
	line             string // the whole plain form, if it is another
}

type header struct {
	Key   string  `json:"key"`
	Value *string `json:"value"`
}

type printer struct {
	cfg        DumpConfig
	out        *bufio.Writer
	key, value func([]byte) (string, bool) // nil: as it is
	markers    markers                     // nil: not known
}

func (p *printer) row(partition int32, r *kafka.Record) row {
	row := row{Partition: partition, Offset: r.Offset, Timestamp: r.Timestamp}
	switch r.Control {
	case kafka.ControlCommit:
		row.Marker = "COMMIT"
	case kafka.ControlAbort:
		row.Marker = "ABORT"
	case kafka.ControlNone:
		row.Key, row.KeyHex, row.rawKey = render(r.Key, p.key)
		row.Value, row.ValueHex, row.rawValue = render(r.Value, p.value)
	}
	if p.markers != nil && row.Marker == "" {
		row.Hidden = p.markers.fate(partition, r)
	}
	if p.cfg.Decode && row.Marker == "" && strings.HasSuffix(p.cfg.Topic, deadLettersSuffix) {
		if d, ok := ParseDeadLetter(r); ok {
			row.DeadLetter, row.line = &d, d.line(r)
		}
	}
	for _, h := range r.Headers {
		value, _, _ := render(h.Value, nil)
		row.Headers = append(row.Headers, header{Key: h.Key, Value: value})
	}
	return row
}

// render gives bytes as text, as hexadecimal if they are not UTF-8, and as the console consumer prints them.
func render(b []byte, decode func([]byte) (string, bool)) (text *string, hexadecimal, raw string) {
	if b == nil {
		return nil, "", "null"
	}
	s := string(b)
	if decode != nil {
		if decoded, ok := decode(b); ok {
			s = decoded
		}
	}
	if !utf8.ValidString(s) {
		return nil, hex.EncodeToString(b), s
	}
	return &s, "", s
}

func (p *printer) print(r row) error {
	if p.cfg.JSON {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = p.out.Write(append(line, '\n'))
		return err
	}
	if r.Hidden != "" {
		if _, err := fmt.Fprintf(p.out, "# %s partition=%d offset=%d: ", r.Hidden, r.Partition, r.Offset); err != nil {
			return err
		}
	}
	var err error
	switch {
	case r.Marker != "":
		_, err = fmt.Fprintf(p.out, "# %s marker partition=%d offset=%d\n", r.Marker, r.Partition, r.Offset)
	case r.line != "":
		_, err = fmt.Fprintln(p.out, r.line)
	case p.cfg.PrintKey || p.cfg.Last:
		_, err = fmt.Fprintf(p.out, "%s\t%s\n", r.rawKey, r.rawValue)
	default:
		_, err = fmt.Fprintln(p.out, r.rawValue)
	}
	return err
}

// decoders returns what the keys and values of a topic are in truth, by the topic's name; nil means text.
func decoders(topic string) (key, value func([]byte) (string, bool)) {
	switch {
	case strings.HasSuffix(topic, "-"+topology.PerStoreMinuteChangelog):
		return windowKey, count
	case strings.HasSuffix(topic, "-"+topology.PerStoreChangelog):
		return nil, count
	default:
		return nil, nil
	}
}

// windowKey prints the key of a window store's changelog like the key of the minute counts, so that the two topics can be compared.
func windowKey(b []byte) (string, bool) {
	key, start, err := store.SplitWindowKey(b)
	if err != nil {
		return "", false
	}
	return string(key) + "|" + time.UnixMilli(start).UTC().Format("2006-01-02T15:04:05.999Z07:00"), true
}

func count(b []byte) (string, bool) {
	if len(b) != 8 {
		return "", false
	}
	return strconv.FormatInt(int64(binary.BigEndian.Uint64(b)), 10), true
}
