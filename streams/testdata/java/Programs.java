import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
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
import org.apache.kafka.streams.state.KeyValueStore;

/** Writes the description of each program below to a file. Argument: the folder to write to. */
public class Programs {
    static final Serde<String> TEXT = Serdes.String();
    static final TimeWindows MINUTE = TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1));

    static KStream<String, String> in(StreamsBuilder b) { return b.stream("in", Consumed.with(TEXT, TEXT)); }
    static KStream<String, String> in2(StreamsBuilder b) { return b.stream("in2", Consumed.with(TEXT, TEXT)); }
    static KTable<String, String> table(StreamsBuilder b) { return b.table("t", Consumed.with(TEXT, TEXT), text("ts")); }
    static KTable<String, String> unnamed(StreamsBuilder b) { return b.table("t", Consumed.with(TEXT, TEXT)); }
    static KStream<String, String> mapped(StreamsBuilder b) { return in(b).map(KeyValue::pair); }
    static Grouped<String, String> grouped() { return Grouped.with(TEXT, TEXT); }
    static Joined<String, String, String> joined() { return Joined.with(TEXT, TEXT, TEXT); }
    static Materialized<String, String, KeyValueStore<Bytes, byte[]>> text(String name) {
        return Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(TEXT).withValueSerde(TEXT);
    }
    static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> counts(String name) {
        return Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as(name).withKeySerde(TEXT);
    }
    static void eachBranch(Map<String, KStream<String, String>> branches, String prefix) {
        List<String> names = new ArrayList<>(branches.keySet());
        Collections.sort(names);
        names.forEach(name -> branches.get(name).to(prefix + name));
    }

    static final Map<String, Consumer<StreamsBuilder>> PROGRAMS = new LinkedHashMap<>();
    static {
        PROGRAMS.put("stateless", b -> {
            KStream<String, String> s = in(b);
            s.filter((k, v) -> true).filterNot((k, v) -> false).map(KeyValue::pair).mapValues(v -> v)
                .flatMap((k, v) -> List.of(KeyValue.pair(k, v))).flatMapValues(v -> List.of(v)).selectKey((k, v) -> k)
                .peek((k, v) -> { }).to("out", Produced.with(TEXT, TEXT));
            s.foreach((k, v) -> { });
        });
        PROGRAMS.put("named", b -> {
            b.stream("in", Consumed.with(TEXT, TEXT).withName("src")).filter((k, v) -> true, Named.as("flt")).map(KeyValue::pair)
                .peek((k, v) -> { }, Named.as("look")).to("out", Produced.with(TEXT, TEXT).withName("snk"));
            b.table("t", Consumed.with(TEXT, TEXT).withName("tab"), text("ts")).toStream(Named.as("ts2"))
                .foreach((k, v) -> { }, Named.as("fe"));
        });
        PROGRAMS.put("merge", b -> {
            KStream<String, String> s = in(b);
            KStream<String, String> o = in2(b);
            s.merge(o).filter((k, v) -> true).to("out");
            s.merge(o, Named.as("both")).to("out2");
            s.mapValues(v -> v).merge(s.filter((k, v) -> true)).to("out3");
        });
        PROGRAMS.put("split", b -> {
            KStream<String, String> s = in(b);
            eachBranch(s.split().branch((k, v) -> true).branch((k, v) -> true, Branched.as("-b")).defaultBranch(), "out");
            eachBranch(s.split(Named.as("sp-")).branch((k, v) -> true, Branched.as("x")).branch((k, v) -> true)
                .defaultBranch(Branched.as("rest")), "o-");
            s.split().branch((k, v) -> true).noDefaultBranch().values().forEach(x -> x.to("last"));
        });
        PROGRAMS.put("table-unnamed", b -> unnamed(b).toStream().to("out"));
        PROGRAMS.put("table-unnamed-joined", b -> {
            KTable<String, String> t = unnamed(b);
            in(b).join(t, (x, y) -> x).to("out");
        });
        PROGRAMS.put("table-unnamed-filter-joined", b -> {
            KTable<String, String> t = unnamed(b);
            in(b).join(t.filter((k, v) -> true), (x, y) -> x).to("out");
        });
        PROGRAMS.put("table-before-stream", b -> {
            KTable<String, String> t = table(b);
            in(b).join(t, (x, y) -> x).to("out");
        });
        PROGRAMS.put("leftjoin", b -> {
            KStream<String, String> s = in(b);
            KTable<String, String> t = table(b);
            s.leftJoin(t, (x, y) -> x).to("out");
            s.join(t, (x, y) -> x, joined().withName("nj")).to("out2");
        });
        PROGRAMS.put("join-repartition", b -> {
            KStream<String, String> s = in(b).selectKey((k, v) -> k);
            KTable<String, String> t = table(b);
            s.join(t, (x, y) -> x, joined()).to("out");
            s.leftJoin(t, (x, y) -> x, joined()).to("out2");
            s.join(t, (x, y) -> x, joined().withName("nj")).to("out3");
            s.filter((k, v) -> true).join(t, (x, y) -> x, joined()).to("out4");
            s.join(t, (x, y) -> x, joined()).to("out5");
        });
        PROGRAMS.put("table-ops", b -> {
            KTable<String, String> f = table(b).filter((k, v) -> true);
            f.mapValues(v -> v).toStream().to("out");
            in(b).join(f.mapValues(v -> v, Named.as("mv")), (x, y) -> x).to("out2");
            f.filterNot((k, v) -> true).toStream().to("out3");
        });
        PROGRAMS.put("count-join", b -> {
            KStream<String, String> s = in(b);
            KTable<String, Long> t = s.groupByKey().count(counts("c"));
            s.join(t, (x, y) -> x).to("out");
        });
        PROGRAMS.put("count-unnamed", b -> in(b).groupByKey().count().toStream().to("out"));
        PROGRAMS.put("count-unnamed-repartition", b -> mapped(b).groupByKey(grouped()).count().toStream().to("out"));
        PROGRAMS.put("count-named-node", b -> mapped(b).groupByKey(grouped()).count(Named.as("cnt"), counts("c")).toStream().to("out"));
        PROGRAMS.put("groupby", b -> in(b).groupBy((k, v) -> v, grouped()).count(counts("c")).toStream().to("out"));
        PROGRAMS.put("groupby-named", b -> {
            KGroupedStream<String, String> g = in(b).groupBy((k, v) -> v, grouped().withName("g"));
            g.count(counts("c")).toStream().to("out");
            g.reduce((x, y) -> x, text("r")).toStream().to("out2");
        });
        PROGRAMS.put("groupby-twice-unnamed", b -> {
            KGroupedStream<String, String> g = in(b).groupBy((k, v) -> v, grouped());
            g.count(counts("c")).toStream().to("out");
            g.count(counts("d")).toStream().to("out2");
            g.count().toStream().to("out3");
        });
        PROGRAMS.put("grouped-reuse-between", b -> {
            KStream<String, String> s = mapped(b);
            KGroupedStream<String, String> g = s.groupByKey(grouped().withName("g"));
            KTable<String, Long> c = g.count(counts("c"));
            s.filter((k, v) -> true).to("mid");
            c.toStream().to("out");
            g.count(counts("d")).toStream().to("out2");
            s.to("late");
        });
        PROGRAMS.put("reduce", b -> {
            KGroupedStream<String, String> g = in(b).groupByKey();
            g.reduce((x, y) -> x).toStream().to("o1");
            g.reduce((x, y) -> x, text("r")).toStream().to("o2");
            g.reduce((x, y) -> x, Named.as("red"), text("r2")).toStream().to("o3");
        });
        PROGRAMS.put("aggregate", b -> {
            KGroupedStream<String, String> g = in(b).groupByKey();
            g.aggregate(() -> "", (k, v, x) -> x).toStream().to("o1");
            g.aggregate(() -> "", (k, v, x) -> x, text("r")).toStream().to("o2");
            g.aggregate(() -> "", (k, v, x) -> x, Named.as("agg"), text("r2")).toStream().to("o3");
        });
        PROGRAMS.put("windows", b -> {
            KGroupedStream<String, String> g = in(b).groupByKey();
            g.windowedBy(MINUTE).count().toStream().foreach((k, v) -> { });
            g.windowedBy(MINUTE.advanceBy(Duration.ofSeconds(10))).count(Materialized.as("w")).toStream().foreach((k, v) -> { });
            g.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofSeconds(1)))
                .count(Named.as("wc"), Materialized.as("w2")).toStream().foreach((k, v) -> { });
        });
        PROGRAMS.put("windows-repartition", b -> {
            KGroupedStream<String, String> g = in(b).selectKey((k, v) -> v).groupByKey(grouped());
            g.windowedBy(MINUTE).count().toStream().foreach((k, v) -> { });
            g.windowedBy(MINUTE).count(Materialized.as("w")).toStream().foreach((k, v) -> { });
        });
        PROGRAMS.put("repartition", b -> {
            KStream<String, String> s = in(b);
            Repartitioned<String, String> r = Repartitioned.with(TEXT, TEXT);
            s.repartition(r).to("o1");
            s.repartition(r.withName("rp").withNumberOfPartitions(4)).groupByKey().count(counts("c")).toStream().to("o2");
            s.repartition(r.withName("x-repartition")).to("o3");
        });
        PROGRAMS.put("chain", b -> {
            in(b).selectKey((k, v) -> v).groupByKey(grouped()).count(counts("c1")).toStream().selectKey((k, v) -> k)
                .groupByKey(Grouped.with(TEXT, Serdes.Long())).count(counts("c2")).toStream().to("out");
            table(b).toStream().groupByKey().count(counts("c3")).toStream().to("out2");
        });
        PROGRAMS.put("merge-repartition", b -> {
            KStream<String, String> s = in(b);
            KStream<String, String> o = in2(b);
            s.selectKey((k, v) -> v).merge(o).groupByKey(grouped()).count(counts("c")).toStream().to("out");
        });
        PROGRAMS.put("programB", b -> {
            KStream<String, String> placed = b.stream("orders.placed", Consumed.with(TEXT, TEXT)).filter((k, v) -> true);
            placed.filter((k, v) -> true).map(KeyValue::pair).to("analytics.high-value-orders");
            KTable<String, String> status = b.table("orders.status", Consumed.with(TEXT, TEXT), text("order-status"));
            placed.join(status, (x, y) -> x).to("analytics.orders-with-status");
            KGroupedStream<String, String> g = placed.map(KeyValue::pair).groupByKey(grouped().withName("orders-by-store"));
            g.count(counts("orders-per-store")).toStream().mapValues(v -> "" + v).to("analytics.orders-per-store");
            g.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofSeconds(30)))
                .count(Materialized.as("orders-per-store-minute")).toStream().map((k, v) -> KeyValue.pair(k.key(), "" + v))
                .to("analytics.orders-per-store-minute");
        });
    }

    public static void main(String[] args) throws Exception {
        for (Map.Entry<String, Consumer<StreamsBuilder>> p : PROGRAMS.entrySet()) {
            StreamsBuilder b = new StreamsBuilder();
            p.getValue().accept(b);
            Files.writeString(Path.of(args[0], p.getKey() + ".txt"), b.build().describe().toString());
        }
    }
}
