import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeSet;
import java.util.function.Consumer;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Pipes random records through topologies in Kafka Streams' TopologyTestDriver, which commits after each, and writes what came in
 * (lines "> topic timestamp key value", or "> clock ms" where the wall clock moves) and what each topic then got ("< …"). Arguments:
 * the folder to write to, statestore.cache.max.bytes if not the default, and then the programs if not all.
 */
public class Conformance {
    static final Serde<String> TEXT = Serdes.String();
    static final Serde<Long> LONG = Serdes.Long();
    static final String[] KEYS = {"a", "b", "c", "dd", "", null};
    static final String[] VALUES = {"one", "two", "three", "x", "", null};

    static KStream<String, String> in(StreamsBuilder b) { return b.stream("in", Consumed.with(TEXT, TEXT)); }
    static KTable<String, String> table(StreamsBuilder b) { return b.table("t", Consumed.with(TEXT, TEXT), text("ts")); }
    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> text(String name) {
        return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(TEXT).withValueSerde(TEXT);
    }
    static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> counts(String name) {
        return Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(TEXT).withValueSerde(LONG);
    }
    static void out(KStream<String, String> s, String topic) { s.to(topic, Produced.with(TEXT, TEXT)); }
    static void outCount(KStream<String, Long> s, String topic) { s.to(topic, Produced.with(TEXT, LONG)); }
    static Materialized<String, String, WindowStore<Bytes, byte[]>> windowed(String name) {
        return Materialized.<String, String, WindowStore<Bytes, byte[]>>as(name).withKeySerde(TEXT).withValueSerde(TEXT);
    }
    static void outWindows(KStream<Windowed<String>, String> s, String topic) {
        s.to(topic, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 60000), TEXT));
    }
    static String upper(String v) { return v == null ? null : v.toUpperCase(); }
    static String zero(String v) { return v == null ? "" : v; }

    static final Map<String, Consumer<StreamsBuilder>> PROGRAMS = new LinkedHashMap<>();
    static {
        PROGRAMS.put("stateless", b -> {
            KStream<String, String> s = in(b);
            out(s.filter((k, v) -> zero(v).length() > 1).mapValues(Conformance::upper), "long");
            out(s.filterNot((k, v) -> zero(k).equals("a")).selectKey((k, v) -> zero(v)), "swapped");
            out(s.flatMapValues(v -> v == null ? java.util.Collections.singletonList((String) null) : List.of(v, v + v)), "twice");
            out(s.flatMap((k, v) -> List.of(KeyValue.pair(zero(k) + "1", v), KeyValue.pair(zero(k) + "2", v))), "keys");
            out(s.mapValues(Conformance::upper).merge(s), "merged");
            table(b);
        });
        PROGRAMS.put("split", b -> {
            Map<String, KStream<String, String>> m = in(b).split()
                .branch((k, v) -> zero(k).equals("a")).branch((k, v) -> zero(v).equals("x")).defaultBranch();
            m.forEach((name, s) -> out(s, "branch-" + name.charAt(name.length() - 1)));
            table(b);
        });
        PROGRAMS.put("joins", b -> {
            KStream<String, String> s = in(b);
            KTable<String, String> t = table(b);
            out(s.join(t, (v, w) -> v + "/" + w), "inner");
            out(s.leftJoin(t, (v, w) -> v + "/" + w), "left");
        });
        PROGRAMS.put("join-repartition", b -> {
            KStream<String, String> s = in(b).selectKey((k, v) -> zero(k) + "b");
            KTable<String, String> t = table(b);
            out(s.join(t, (v, w) -> v + "/" + w, Joined.with(TEXT, TEXT, TEXT)), "inner");
        });
        PROGRAMS.put("repartition-null-keys", b -> {
            KStream<String, String> s = in(b);
            KTable<String, String> t = table(b);
            out(s.repartition(Repartitioned.with(TEXT, TEXT).withName("plain")), "plain");
            out(s.repartition(Repartitioned.with(TEXT, TEXT).withName("left")).leftJoin(t, (v, w) -> v + "/" + w), "left");
        });
        PROGRAMS.put("filtered-table-join", b -> {
            KTable<String, String> t = table(b).filter((k, v) -> v.length() > 2).mapValues(Conformance::upper);
            out(in(b).leftJoin(t, (v, w) -> v + "/" + w), "left");
        });
        PROGRAMS.put("table-views", b -> {
            KTable<String, String> t = b.table("t", Consumed.with(TEXT, TEXT));
            out(t.filter((k, v) -> v.length() > 2).toStream(), "filtered");
            out(t.filterNot((k, v) -> v.length() > 2).mapValues(Conformance::upper).toStream(), "others");
            in(b).foreach((k, v) -> { });
        });
        PROGRAMS.put("table", b -> {
            out(table(b).mapValues(Conformance::upper).toStream(), "upper");
            in(b).foreach((k, v) -> { });
        });
        PROGRAMS.put("aggregates", b -> {
            KStream<String, String> s = in(b);
            outCount(s.groupByKey().count(counts("c")).toStream(), "counts");
            out(s.groupByKey().reduce((x, y) -> x + y, text("r")).toStream(), "reduced");
            out(s.groupByKey().aggregate(() -> "!", (k, v, x) -> x + k + v, text("a")).toStream(), "aggregated");
            table(b);
        });
        PROGRAMS.put("chain", b -> {
            KStream<String, Long> c = in(b).groupBy((k, v) -> zero(v), Grouped.with(TEXT, TEXT)).count(counts("c1")).toStream();
            outCount(c.selectKey((k, v) -> k.substring(0, Math.min(1, k.length()))).groupByKey(Grouped.with(TEXT, LONG)).count(counts("c2"))
                .toStream(), "second");
            outCount(c, "first");
            table(b);
        });
        PROGRAMS.put("tumbling", b -> {
            windows(b, TimeWindows.ofSizeAndGrace(Duration.ofSeconds(60), Duration.ofSeconds(30)));
            table(b);
        });
        PROGRAMS.put("hopping", b -> {
            windows(b, TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(60)).advanceBy(Duration.ofSeconds(25)));
            table(b);
        });
        PROGRAMS.put("window-aggregates", b -> {
            KGroupedStream<String, String> g = in(b).groupByKey();
            TimeWindows minute = TimeWindows.ofSizeAndGrace(Duration.ofSeconds(60), Duration.ofSeconds(30));
            TimeWindows hops = TimeWindows.ofSizeAndGrace(Duration.ofSeconds(60), Duration.ofSeconds(10)).advanceBy(Duration.ofSeconds(25));
            // A null value reaches the reducer and the aggregator; as the first of its window it leaves no reduced value.
            outWindows(g.windowedBy(minute).reduce((x, y) -> x + zero(y), windowed("rw")).toStream(), "reduced");
            outWindows(g.windowedBy(hops).aggregate(() -> "!", (k, v, x) -> x + k + zero(v),
                windowed("aw").withRetention(Duration.ofMinutes(5))).toStream(), "aggregated");
            table(b);
        });
        PROGRAMS.put("filtered-tables", b -> {
            KTable<String, String> t = table(b);
            out(t.filter((k, v) -> v.length() > 2).toStream(), "long");
            out(t.mapValues(Conformance::upper).filterNot((k, v) -> v.startsWith("T")).filter((k, v) -> v.length() > 2).toStream(), "upper");
            outCount(in(b).groupByKey().count(counts("c")).filter((k, v) -> v % 3 == 0).toStream(), "third");
        });
        PROGRAMS.put("filter-before-join", b -> {
            // The join asks for the store when the first filter is made already, and before the second.
            KTable<String, String> t = b.table("t", Consumed.with(TEXT, TEXT));
            out(t.filter((k, v) -> v.length() > 2).toStream(), "early");
            out(in(b).join(t, (v, w) -> v + "/" + w), "joined");
            out(t.filter((k, v) -> v.length() > 2).toStream(), "late");
        });
        PROGRAMS.put("processor", b -> {
            b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("joined"), TEXT, TEXT));
            b.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("times"), TEXT, LONG));
            // The driver has one stream time for all sub-topologies, so this is one; the table's records come while it is flushed.
            out(in(b).merge(table(b).toStream()).process(Joiner::new, "joined").process(Stamper::new, "times", "joined"), "out");
        });
    }

    /** Joins the values of each key, and every 20 s of stream time forwards and removes the long ones. */
    static class Joiner implements Processor<String, String, String, String> {
        ProcessorContext<String, String> context;
        KeyValueStore<String, String> joined;
        Cancellable few;
        int calls;

        @Override
        public void init(ProcessorContext<String, String> context) {
            this.context = context;
            joined = context.getStateStore("joined");
            context.schedule(Duration.ofSeconds(20), PunctuationType.STREAM_TIME, now -> {
                try (KeyValueIterator<String, String> all = joined.all()) {
                    while (all.hasNext()) {
                        KeyValue<String, String> e = all.next();
                        if (e.value.length() < 6) continue;
                        context.forward(new Record<>("long-" + e.key, e.value, now));
                        joined.delete(e.key);
                    }
                }
            });
            few = context.schedule(Duration.ofSeconds(7), PunctuationType.STREAM_TIME, now -> {
                if (++calls == 5) few.cancel();
                context.forward(new Record<>("few", String.valueOf(calls), now - 1));
            });
        }

        @Override
        public void process(Record<String, String> r) {
            String key = zero(r.key());
            if (r.value() == null) {
                joined.delete(key);
                return;
            }
            String old = joined.get(key);
            joined.put(key, zero(old) + r.value());
            context.forward(r.withKey(key).withValue(zero(old)).withTimestamp(r.timestamp() + 500));
            if (r.value().equals("x")) {
                try (KeyValueIterator<String, String> some = joined.range("a", "c")) {
                    while (some.hasNext()) {
                        KeyValue<String, String> e = some.next();
                        context.forward(new Record<>("range-" + e.key, e.value, r.timestamp()));
                    }
                }
            }
        }
    }

    /** Keeps each key's timestamp: the changelog shows which timestamp is the context's. */
    static class Stamper implements Processor<String, String, String, String> {
        ProcessorContext<String, String> context;
        KeyValueStore<String, Long> times;
        KeyValueStore<String, String> joined;

        @Override
        public void init(ProcessorContext<String, String> context) {
            this.context = context;
            times = context.getStateStore("times");
            joined = context.getStateStore("joined");
        }

        @Override
        public void process(Record<String, String> r) {
            times.put(r.key(), r.timestamp() - 1);
            context.forward(r.withValue(r.value() + "|" + zero(joined.get(r.key()))));
        }
    }

    static void windows(StreamsBuilder b, TimeWindows w) {
        outCount(in(b).groupByKey().windowedBy(w).count(Materialized.as("w")).toStream()
            .map((k, v) -> KeyValue.pair(k.key() + "|" + k.window().startTime() + "|" + k.window().end(), v)), "windows");
    }

    static String show(byte[] b) {
        if (b == null) return "null";
        StringBuilder s = new StringBuilder("=");
        for (byte x : b) s.append(String.format("%02x", x));
        return s.toString();
    }

    static void logOutput(TopologyTestDriver d, StringBuilder log) {
        for (String name : new TreeSet<>(d.producedTopicNames())) {
            d.createOutputTopic(name, new ByteArrayDeserializer(), new ByteArrayDeserializer()).readRecordsToList().forEach(r ->
                log.append(String.format("< %s %d %s %s%n", name, r.timestamp(), show(r.key()), show(r.value()))));
        }
    }

    public static void main(String[] args) throws Exception {
        TreeSet<String> first = new TreeSet<>(PROGRAMS.keySet());
        Operators.add(PROGRAMS);
        List<String> asked = List.of(args).subList(Math.min(2, args.length), args.length);
        for (Map.Entry<String, Consumer<StreamsBuilder>> p : PROGRAMS.entrySet()) {
            if (!asked.isEmpty() && !asked.contains(p.getKey())) continue;
            StreamsBuilder b = new StreamsBuilder();
            p.getValue().accept(b);
            Properties props = new Properties();
            if (p.getKey().endsWith("-reused")) props.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.REUSE_KTABLE_SOURCE_TOPICS);
            props.put(StreamsConfig.APPLICATION_ID_CONFIG, "app");
            props.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
            props.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
            props.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
            props.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("conformance").toString());
            if (args.length > 1) props.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, args[1]);
            StringBuilder log = new StringBuilder();
            Random rnd = new Random(first.contains(p.getKey()) ? 3 : p.getKey().hashCode());
            long now = 1789207200000L;
            try (TopologyTestDriver d = new TopologyTestDriver(b.build(props), props, Instant.ofEpochMilli(now))) {
                Map<String, TestInputTopic<String, String>> topics = new LinkedHashMap<>();
                for (String t : List.of("in", "t")) topics.put(t, d.createInputTopic(t, new StringSerializer(), new StringSerializer()));
                for (int i = 0; i < 120; i++) {
                    String topic = rnd.nextInt(3) == 0 ? "t" : "in";
                    String key = KEYS[rnd.nextInt(KEYS.length)], value = VALUES[rnd.nextInt(VALUES.length)];
                    now += rnd.nextInt(9000);
                    long ts = rnd.nextInt(4) == 0 ? now - rnd.nextInt(150000) : now;
                    log.append(String.format("> %s %d %s %s%n", topic, ts, show(key == null ? null : key.getBytes()),
                        show(value == null ? null : value.getBytes())));
                    topics.get(topic).pipeInput(new TestRecord<>(key, value, (Headers) null, ts));
                    logOutput(d, log);
                    if (p.getKey().startsWith("wall-clock") && i % 5 == 4) {
                        int ms = rnd.nextInt(25000);
                        log.append(String.format("> clock %d%n", ms));
                        d.advanceWallClockTime(Duration.ofMillis(ms));
                        logOutput(d, log);
                    }
                }
            }
            Files.writeString(Path.of(args[0], p.getKey() + ".txt"), log);
        }
    }
}
