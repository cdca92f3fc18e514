import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** One program or more for each operator: the programs of conformance_operators_test.go, call by call. */
class Operators {
    static final Duration MINUTE = Duration.ofMinutes(1), HALF = Duration.ofSeconds(30), TWENTY = Duration.ofSeconds(20);
    static final TimeWindows MINUTES = TimeWindows.ofSizeWithNoGrace(MINUTE);

    static KStream<String, String> in(StreamsBuilder b) { return Conformance.in(b); }
    static KTable<String, String> table(StreamsBuilder b) { return Conformance.table(b); }
    static void out(KStream<String, String> s, String topic) { Conformance.out(s, topic); }
    static void outCount(KStream<String, Long> s, String topic) { Conformance.outCount(s, topic); }
    static void outMinutes(KStream<org.apache.kafka.streams.kstream.Windowed<String>, Long> s) {
        s.to("minutes", Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 60000), Conformance.LONG));
    }
    static String zero(String v) { return v == null ? "" : v; }
    static String upper(String v) { return Conformance.upper(v); }
    static KGroupedStream<String, String> byValue(StreamsBuilder b, String name) {
        Grouped<String, String> g = Grouped.with(Conformance.TEXT, Conformance.TEXT);
        return in(b).groupBy((k, v) -> zero(v), name == null ? g : g.withName(name));
    }

    static final TimestampExtractor BY_LENGTH = (r, time) -> r.timestamp() - 1000L * zero((String) r.value()).length();
    static final TimestampExtractor NEVER_BACK = (r, time) -> Math.max(time, r.timestamp());

    static void add(Map<String, Consumer<StreamsBuilder>> programs) {
        stateless(programs);
        tables(programs);
        aggregates(programs);
        windows(programs);
        processors(programs);
    }

    static void stateless(Map<String, Consumer<StreamsBuilder>> programs) {
        programs.put("map", b -> {
            KStream<String, String> s = in(b);
            out(s.map((k, v) -> KeyValue.pair(zero(v), v == null ? null : zero(k))), "swapped");
            outCount(s.map((k, v) -> KeyValue.pair(zero(k), v == null ? null : (long) v.length())), "lengths");
            table(b);
        });
        programs.put("map-values", b -> {
            out(in(b).mapValues(Operators::upper).mapValues(v -> v == null ? null : v + "!"), "loud");
            table(b);
        });
        programs.put("flat-map", b -> {
            out(in(b).flatMap((k, v) -> zero(v).length() == 3 ? List.<KeyValue<String, String>>of()
                : List.of(KeyValue.pair(zero(v), v), KeyValue.pair("k", v))), "pairs");
            table(b);
        });
        programs.put("flat-map-values", b -> {
            out(in(b).flatMapValues(v -> v == null ? Collections.singletonList((String) null)
                : v.chars().mapToObj(c -> String.valueOf((char) c)).toList()), "letters");
            table(b);
        });
        programs.put("filter-chain", b -> {
            out(in(b).filter((k, v) -> zero(v).length() > 0).filterNot((k, v) -> zero(k).equals("b")).filter((k, v) -> !zero(v).equals("x")), "left");
            table(b);
        });
        programs.put("select-key", b -> {
            out(in(b).selectKey((k, v) -> zero(v)).selectKey((k, v) -> k + "/" + k), "rekeyed");
            table(b);
        });
        programs.put("peek", b -> {
            KStream<String, String> s = in(b).peek((k, v) -> { });
            out(s.filter((k, v) -> zero(v).startsWith("t")), "seen");
            s.foreach((k, v) -> { });
            table(b);
        });
        programs.put("merge", b -> {
            KStream<String, String> s = in(b);
            out(s.merge(table(b).toStream()).merge(s.filter((k, v) -> zero(v).equals("one"))), "merged");
        });
        programs.put("split-no-default", b -> {
            out(in(b).split(Named.as("s")).branch((k, v) -> zero(v).length() == 3, Branched.as("three")).noDefaultBranch().get("sthree"), "three");
            table(b);
        });
        programs.put("split-named", b -> {
            Map<String, KStream<String, String>> m = in(b).split(Named.as("sp-")).branch((k, v) -> zero(k).equals("c"), Branched.as("c"))
                .branch((k, v) -> zero(v).equals("two"), Branched.as("two")).defaultBranch(Branched.as("rest"));
            out(m.get("sp-c"), "c");
            out(m.get("sp-two"), "two");
            out(m.get("sp-rest"), "rest");
            table(b);
        });
        programs.put("split-nested", b -> {
            Map<String, KStream<String, String>> m = in(b).split(Named.as("o-")).branch((k, v) -> zero(v).length() == 3, Branched.as("3"))
                .defaultBranch(Branched.as("n"));
            Map<String, KStream<String, String>> n = m.get("o-3").split(Named.as("i-")).branch((k, v) -> zero(k).equals("a"), Branched.as("a"))
                .defaultBranch(Branched.as("n"));
            out(n.get("i-a"), "a");
            out(n.get("i-n"), "other");
            out(m.get("o-n").mapValues(Operators::upper), "rest");
            table(b);
        });
        programs.put("named", b -> {
            KStream<String, String> s = b.stream("in", Consumed.with(Conformance.TEXT, Conformance.TEXT).withName("source"));
            s.filter((k, v) -> zero(v).length() > 1, Named.as("long")).mapValues(Operators::upper, Named.as("upper"))
                .selectKey((k, v) -> zero(k) + zero(v), Named.as("rekey")).peek((k, v) -> { }, Named.as("look"))
                .to("named", Produced.with(Conformance.TEXT, Conformance.TEXT).withName("sink"));
            s.foreach((k, v) -> { }, Named.as("end"));
            table(b);
        });
        programs.put("bytes", b -> {
            b.stream("in", Consumed.with(Serdes.ByteArray(), Serdes.ByteArray())).filter((k, v) -> v != null && v.length % 2 == 1)
                .to("odd", Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
            table(b);
        });
        programs.put("event-time", b -> {
            b.stream("in", Consumed.with(Conformance.TEXT, Conformance.TEXT).withTimestampExtractor(BY_LENGTH))
                .to("earlier", Produced.with(Conformance.TEXT, Conformance.TEXT));
            table(b);
        });
        programs.put("event-time-never-back", b -> {
            KStream<String, String> s = b.stream("in", Consumed.with(Conformance.TEXT, Conformance.TEXT).withTimestampExtractor(NEVER_BACK));
            outMinutes(s.groupByKey().windowedBy(MINUTES).count(Materialized.as("w")).toStream());
            table(b);
        });
        programs.put("repartition-unnamed", b -> {
            out(in(b).repartition(Repartitioned.with(Conformance.TEXT, Conformance.TEXT)), "through");
            table(b);
        });
        programs.put("repartition-counted", b -> {
            outCount(in(b).selectKey((k, v) -> zero(v)).repartition(Repartitioned.with(Conformance.TEXT, Conformance.TEXT).withName("r"))
                .groupByKey().count(Conformance.counts("c")).toStream(), "counts");
            table(b);
        });
    }

    static void tables(Map<String, Consumer<StreamsBuilder>> programs) {
        programs.put("event-time-table", b -> {
            KTable<String, String> t = b.table("t", Consumed.with(Conformance.TEXT, Conformance.TEXT).withTimestampExtractor(BY_LENGTH),
                Conformance.text("ts"));
            out(t.toStream(), "changes");
            in(b).foreach((k, v) -> { });
        });
        programs.put("table-unnamed", b -> {
            out(b.table("t", Consumed.with(Conformance.TEXT, Conformance.TEXT)).toStream(), "changes");
            in(b).foreach((k, v) -> { });
        });
        programs.put("table-unnamed-joined", b -> {
            KTable<String, String> t = b.table("t", Consumed.with(Conformance.TEXT, Conformance.TEXT));
            out(in(b).join(t, (v, w) -> v + "/" + w), "joined");
        });
        programs.put("table-reused", b -> {
            KTable<String, String> t = table(b);
            out(in(b).leftJoin(t, (v, w) -> v + "/" + w), "joined");
        });
        programs.put("table-chain", b -> {
            KTable<String, String> t = table(b).filter((k, v) -> v.length() > 0).mapValues(Operators::upper).filterNot((k, v) -> v.equals("X"));
            out(t.toStream(), "changes");
            out(in(b).join(t, (v, w) -> v + "/" + w), "joined");
        });
        programs.put("table-to-stream-count", b -> {
            outCount(table(b).toStream().groupByKey().count(Conformance.counts("c")).toStream(), "counts");
            in(b).foreach((k, v) -> { });
        });
        programs.put("table-named", b -> {
            KTable<String, String> t = b.table("t", Consumed.with(Conformance.TEXT, Conformance.TEXT).withName("tab"), Conformance.text("ts"));
            out(t.filter((k, v) -> v.length() > 2, Named.as("long")).mapValues(Operators::upper, Named.as("upper")).toStream(Named.as("changes")), "changes");
            in(b).foreach((k, v) -> { });
        });
        programs.put("join-counts", b -> {
            KStream<String, String> s = in(b);
            KTable<String, Long> c = s.groupByKey().count(Conformance.counts("c"));
            out(s.join(c, (v, n) -> v + "/" + n), "joined");
            table(b);
        });
        programs.put("join-named", b -> {
            KStream<String, String> s = in(b).selectKey((k, v) -> zero(k) + "d");
            out(s.join(table(b), (v, w) -> v + "/" + w, Joined.with(Conformance.TEXT, Conformance.TEXT, Conformance.TEXT).withName("j")), "joined");
        });
        programs.put("join-twice", b -> {
            KTable<String, String> t = table(b);
            out(in(b).join(t, (v, w) -> v + "/" + w).leftJoin(t, (v, w) -> v + "|" + w), "joined");
        });
        programs.put("left-join-repartition", b -> {
            KStream<String, String> s = in(b).selectKey((k, v) -> zero(k).equals("") ? "dd" : "a");
            out(s.leftJoin(table(b), (v, w) -> v + "/" + w, Joined.with(Conformance.TEXT, Conformance.TEXT, Conformance.TEXT)), "joined");
        });
        programs.put("left-join-mapped", b ->
            out(in(b).leftJoin(table(b).mapValues(v -> v.length() + v), (v, w) -> v + "/" + w).mapValues(Operators::upper), "joined"));
        programs.put("join-filter-not", b ->
            out(in(b).join(table(b).filterNot((k, v) -> v.startsWith("t")), (v, w) -> v + "/" + w), "joined"));
    }

    static void aggregates(Map<String, Consumer<StreamsBuilder>> programs) {
        programs.put("count-unnamed", b -> {
            outCount(in(b).groupByKey().count().toStream(), "counts");
            table(b);
        });
        programs.put("count-named-node", b -> {
            outCount(in(b).groupByKey().count(Named.as("cnt"), Conformance.counts("c")).toStream(), "counts");
            table(b);
        });
        programs.put("count-by-value", b -> {
            outCount(byValue(b, null).count().toStream(), "counts");
            table(b);
        });
        programs.put("count-select-key", b -> {
            outCount(in(b).selectKey((k, v) -> zero(v)).groupByKey(Grouped.with(Conformance.TEXT, Conformance.TEXT))
                .count(Conformance.counts("c")).toStream(), "counts");
            table(b);
        });
        programs.put("count-filtered", b -> {
            KTable<String, Long> c = in(b).groupByKey().count(Conformance.counts("c"));
            outCount(c.filterNot((k, n) -> n % 2 == 0).toStream(), "odd");
            out(c.mapValues(n -> "n" + n).toStream(), "texts");
            table(b);
        });
        programs.put("reduce-by-value", b -> {
            out(byValue(b, "g").reduce((x, y) -> y + x, Conformance.text("r")).toStream(), "reduced");
            table(b);
        });
        programs.put("reduce-unnamed", b -> {
            out(in(b).groupByKey().reduce((x, y) -> y).toStream(), "latest");
            table(b);
        });
        programs.put("aggregate-lengths", b -> {
            outCount(in(b).groupByKey().aggregate(() -> 0L, (k, v, n) -> n + v.length(), Conformance.counts("a")).toStream(), "lengths");
            table(b);
        });
        programs.put("aggregate-by-value", b -> {
            out(byValue(b, null).aggregate(() -> "!", (k, v, x) -> x + k, Conformance.text("a")).toStream(), "aggregated");
            table(b);
        });
        programs.put("two-of-a-group", b -> {
            KGroupedStream<String, String> g = byValue(b, "g");
            outCount(g.count(Conformance.counts("c")).toStream(), "counts");
            out(g.reduce((x, y) -> x + y, Conformance.text("r")).toStream(), "reduced");
            table(b);
        });
    }

    static void windows(Map<String, Consumer<StreamsBuilder>> programs) {
        programs.put("tumbling-no-grace", b -> {
            outMinutes(in(b).groupByKey().windowedBy(MINUTES).count(Materialized.as("w")).toStream());
            table(b);
        });
        programs.put("hopping-grace", b -> {
            outMinutes(in(b).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, HALF).advanceBy(TWENTY)).count(Materialized.as("w")).toStream());
            table(b);
        });
        programs.put("window-retention", b -> {
            outMinutes(in(b).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, HALF))
                .count(Materialized.<String, Long, org.apache.kafka.streams.state.WindowStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("w")
                    .withRetention(Duration.ofMinutes(10))).toStream());
            table(b);
        });
        programs.put("window-unnamed", b -> {
            outMinutes(in(b).groupByKey().windowedBy(MINUTES).count().toStream());
            table(b);
        });
        programs.put("window-named", b -> {
            outMinutes(in(b).groupByKey().windowedBy(MINUTES).count(Named.as("wc"), Materialized.as("w")).toStream());
            table(b);
        });
        programs.put("window-by-value", b -> {
            outMinutes(byValue(b, "g").windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, HALF)).count(Materialized.as("w")).toStream());
            table(b);
        });
        programs.put("window-reduce-hopping", b -> {
            Conformance.outWindows(in(b).groupByKey().windowedBy(MINUTES.advanceBy(HALF)).reduce((x, y) -> zero(y) + x, Conformance.windowed("w"))
                .toStream(), "reduced");
            table(b);
        });
        programs.put("window-aggregate-lengths", b -> {
            outMinutes(in(b).groupByKey().windowedBy(MINUTES).aggregate(() -> 100L, (k, v, n) -> n + zero(v).length(),
                Materialized.<String, Long, org.apache.kafka.streams.state.WindowStore<org.apache.kafka.common.utils.Bytes, byte[]>>as("w")
                    .withKeySerde(Conformance.TEXT).withValueSerde(Conformance.LONG)).toStream());
            table(b);
        });
        programs.put("window-filtered", b -> {
            outMinutes(in(b).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, HALF)).count(Materialized.as("w"))
                .filter((k, n) -> n > 1).toStream());
            table(b);
        });
    }

    static void processors(Map<String, Consumer<StreamsBuilder>> programs) {
        programs.put("processor-twice", b -> {
            out(in(b).process(Twice::new), "twice");
            table(b);
        });
        programs.put("processor-changes", b -> {
            b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("last"), Conformance.TEXT, Conformance.TEXT));
            out(in(b).process(Changes::new, Named.as("changes"), "last"), "changes");
            table(b);
        });
        programs.put("processor-all", b -> {
            b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("sizes"), Conformance.TEXT, Conformance.LONG));
            outCount(in(b).process(Sizes::new, "sizes"), "sizes");
            table(b);
        });
        programs.put("processor-context", b -> {
            // Joined, so that all is one sub-topology: the driver has one stream time for all of them.
            out(in(b).leftJoin(table(b), (v, w) -> v).process(Where::new), "where");
        });
        programs.put("wall-clock", b -> {
            out(in(b).merge(table(b).toStream()).process(Ticker::new), "ticks");
        });
    }

    /** Forwards each record twice, the second a second later. */
    static class Twice extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(Record<String, String> r) {
            context().forward(r);
            context().forward(r.withKey(zero(r.key()) + "2").withTimestamp(r.timestamp() + 1000));
        }
    }

    /** Forwards a value that differs from the last of its key; null forgets the key. */
    static class Changes extends ContextualProcessor<String, String, String, String> {
        KeyValueStore<String, String> last;

        @Override
        public void init(ProcessorContext<String, String> context) {
            super.init(context);
            last = context.getStateStore("last");
        }

        @Override
        public void process(Record<String, String> r) {
            String key = zero(r.key());
            if (r.value() == null) {
                last.delete(key);
            } else if (!r.value().equals(last.get(key))) {
                last.put(key, r.value());
                context().forward(r.withKey(key));
            }
        }
    }

    /** Adds up the lengths of each key's values, and for an empty value forwards all sums. */
    static class Sizes extends ContextualProcessor<String, String, String, Long> {
        KeyValueStore<String, Long> sizes;

        @Override
        public void init(ProcessorContext<String, Long> context) {
            super.init(context);
            sizes = context.getStateStore("sizes");
        }

        @Override
        public void process(Record<String, String> r) {
            String key = zero(r.key());
            Long old = sizes.get(key);
            sizes.put(key, (old == null ? 0 : old) + zero(r.value()).length());
            if (!zero(r.value()).isEmpty()) return;
            try (KeyValueIterator<String, Long> all = sizes.all()) {
                while (all.hasNext()) {
                    KeyValue<String, Long> e = all.next();
                    context().forward(new Record<>(e.key, e.value, r.timestamp()));
                }
            }
        }
    }

    /** Forwards where each record is from, and the stream time. */
    static class Where extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(Record<String, String> r) {
            String at = context().recordMetadata().map(m -> m.topic() + "-" + m.partition() + "@" + m.offset()).orElse("nowhere");
            context().forward(r.withKey(zero(r.key())).withValue(context().taskId() + " " + at + " " + r.timestamp() + " " + context().currentStreamTimeMs()));
        }
    }

    /** Forwards how many records came since the last tick of the wall clock, for six ticks. */
    static class Ticker extends ContextualProcessor<String, String, String, String> {
        Cancellable tick;
        int records, ticks;

        @Override
        public void init(ProcessorContext<String, String> context) {
            super.init(context);
            tick = context.schedule(Duration.ofSeconds(10), PunctuationType.WALL_CLOCK_TIME, now -> {
                if (++ticks == 6) tick.cancel();
                context.forward(new Record<>("tick", String.valueOf(records), now));
                records = 0;
            });
        }

        @Override
        public void process(Record<String, String> r) {
            records++;
        }
    }
}
