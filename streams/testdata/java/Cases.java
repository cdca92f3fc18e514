import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.TimestampExtractor;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Runs the cases of the folder given in Kafka Streams' TopologyTestDriver and compares what each topic got. The driver knows no
 * restart and commits after each record, so a program's steps count from its start to its first restart or batch; a batch without
 * a cache counts, since commits make no difference there. Warnings (lines with !) are not compared. Records with a negative
 * timestamp, which fail in Java, are left out.
 */
public class Cases {
    static final Serde<String> TEXT = Serdes.String();
    static final Serde<Long> LONG = Serdes.Long();
    static final Serde<Windowed<String>> WINDOWED = WindowedSerdes.timeWindowedSerdeFrom(String.class, 60000);
    static final Duration MINUTE = Duration.ofMinutes(1), HALF = Duration.ofSeconds(30);

    static KStream<String, String> in(StreamsBuilder b) { return b.stream("in", Consumed.with(TEXT, TEXT)); }
    static KTable<String, String> table(StreamsBuilder b) {
        return b.table("t", Consumed.with(TEXT, TEXT), Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("ts"));
    }
    static void minutes(KGroupedStream<String, String> g, TimeWindows w, Materialized<String, Long, WindowStore<Bytes, byte[]>> m) {
        g.windowedBy(w).count(m).toStream().to("minutes", Produced.with(WINDOWED, LONG));
    }
    static void counts(KGroupedStream<String, String> g) {
        g.count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("c")).toStream().to("counts", Produced.with(TEXT, LONG));
    }
    static void join(StreamsBuilder b) {
        KStream<String, String> s = in(b);
        s.join(table(b), (v, w) -> v + "/" + w).to("joined", Produced.with(TEXT, TEXT));
    }

    static final Map<String, Consumer<StreamsBuilder>> PROGRAMS = new HashMap<>();
    static {
        PROGRAMS.put("minute-counts", b -> minutes(in(b).groupByKey(), TimeWindows.ofSizeAndGrace(MINUTE, HALF), Materialized.as("w")));
        TimestampExtractor number = (r, time) -> r.value().equals("soon") ? -1 : Long.parseLong((String) r.value());
        PROGRAMS.put("event-time", b -> minutes(b.stream("in", Consumed.with(TEXT, TEXT).withTimestampExtractor(number)).groupByKey(),
            TimeWindows.ofSizeAndGrace(MINUTE, HALF), Materialized.as("w")));
        PROGRAMS.put("hopping-counts", b -> minutes(in(b).groupByKey(),
            TimeWindows.ofSizeWithNoGrace(MINUTE).advanceBy(Duration.ofSeconds(20)), Materialized.as("w")));
        PROGRAMS.put("kept-windows", b -> minutes(in(b).groupByKey(), TimeWindows.ofSizeWithNoGrace(MINUTE),
            Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("w").withRetention(Duration.ofMinutes(10))));
        PROGRAMS.put("reduced-minutes", b -> in(b).groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(MINUTE, HALF))
            .reduce((x, y) -> x + (y == null ? "" : y), Materialized.as("rw")).toStream().to("reduced", Produced.with(WINDOWED, TEXT)));
        PROGRAMS.put("counts", b -> counts(in(b).groupByKey()));
        PROGRAMS.put("both-counts", b -> {
            KGroupedStream<String, String> g =
                in(b).repartition(Repartitioned.with(TEXT, TEXT).withName("r").withNumberOfPartitions(1)).groupByKey();
            counts(g);
            minutes(g, TimeWindows.ofSizeAndGrace(MINUTE, HALF), Materialized.as("w"));
        });
        PROGRAMS.put("table", b -> table(b).toStream().to("changes", Produced.with(TEXT, TEXT)));
        PROGRAMS.put("join", Cases::join);
        PROGRAMS.put("join-reuse", Cases::join);
        PROGRAMS.put("left-join", b -> {
            KStream<String, String> s = in(b);
            s.leftJoin(table(b), (v, w) -> v + "/" + (w == null ? "nothing" : w)).to("joined", Produced.with(TEXT, TEXT));
        });
    }

    static String text(byte[] b) { return b == null ? "null" : b.length == 0 ? "\"\"" : new String(b); }

    static String show(String topic, TestRecord<byte[], byte[]> r) {
        String key = text(r.key()), value = text(r.value());
        int suffix = topic.equals("app-w-changelog") || topic.equals("app-rw-changelog") ? 12
            : topic.equals("minutes") || topic.equals("reduced") ? 8 : 0;
        if (suffix > 0) {
            int n = r.key().length - suffix;
            key = text(Arrays.copyOf(r.key(), n)) + "@" + ByteBuffer.wrap(r.key()).getLong(n);
        }
        if (List.of("app-w-changelog", "app-c-changelog", "minutes", "counts").contains(topic) && r.value() != null) {
            value = String.valueOf(ByteBuffer.wrap(r.value()).getLong());
        }
        return topic + " " + r.timestamp() + " " + key + " " + value;
    }

    static String part(String word) { return word.equals("null") ? null : word.equals("\"\"") ? "" : word; }

    static TopologyTestDriver start(String[] words) throws Exception {
        Properties props = new Properties();
        props.put(StreamsConfig.APPLICATION_ID_CONFIG, "app");
        props.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        props.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        props.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        props.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("cases").toString());
        if (Arrays.asList(words).contains("cache=off")) props.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        if (words[1].equals("join-reuse")) props.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.REUSE_KTABLE_SOURCE_TOPICS);
        StreamsBuilder b = new StreamsBuilder();
        PROGRAMS.get(words[1]).accept(b);
        return new TopologyTestDriver(b.build(props), props, Instant.EPOCH);
    }

    public static void main(String[] args) throws Exception {
        int compared = 0, skipped = 0, differing = 0;
        List<Path> files;
        try (Stream<Path> all = Files.list(Path.of(args[0]))) {
            files = all.filter(f -> f.toString().endsWith(".txt")).sorted().toList();
        }
        for (Path file : files) {
            TopologyTestDriver d = null;
            boolean cached = true;
            for (String block : Files.readString(file).split("\n\n")) {
                List<String> lines = new ArrayList<>(block.lines().filter(l -> !l.startsWith("#")).toList());
                if (lines.isEmpty()) continue;
                String[] words = lines.get(0).split(" ");
                if (words[0].equals("start")) {
                    if (d != null) d.close();
                    d = start(words);
                    cached = !lines.get(0).contains("cache=off");
                    continue;
                }
                if (words[0].equals("restart") || words[0].equals("batch") && cached) {
                    if (d != null) d.close();
                    d = null;
                }
                if (d == null) {
                    skipped++;
                    continue;
                }
                int fence = lines.indexOf("----");
                Map<String, List<String>> got = new HashMap<>();
                for (String line : lines.subList(1, fence)) {
                    String[] f = line.split(" ");
                    if (Long.parseLong(f[1]) < 0) continue;
                    d.createInputTopic(f[0], new StringSerializer(), new StringSerializer())
                        .pipeInput(new TestRecord<>(part(f[2]), part(f[3]), (Headers) null, Long.parseLong(f[1])));
                    for (String topic : d.producedTopicNames()) {
                        d.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer()).readRecordsToList()
                            .forEach(r -> got.computeIfAbsent(topic, t -> new ArrayList<>()).add(show(topic, r)));
                    }
                }
                List<String> all = new ArrayList<>();
                new TreeSet<>(got.keySet()).forEach(topic -> all.addAll(got.get(topic)));
                List<String> want = lines.subList(fence + 1, lines.size()).stream().filter(l -> !l.startsWith("!")).toList();
                compared++;
                if (!all.equals(want)) {
                    differing++;
                    System.out.println(file.getFileName() + ": " + lines.subList(0, fence) + "\n  case " + want + "\n  Java " + all);
                }
            }
            if (d != null) d.close();
        }
        System.out.println(compared + " steps compared, " + differing + " differ, " + skipped + " cannot run there");
    }
}
