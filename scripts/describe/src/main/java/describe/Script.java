package describe;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * A topology as lines of operator calls, and the Java DSL calls they stand for. Descriptions do not depend on types or
 * serdes, so every key and value is an Object here.
 */
final class Script {
    private final StreamsBuilder builder = new StreamsBuilder();
    private final Map<String, Object> results = new HashMap<>();
    private final Set<String> stores = new HashSet<>();

    static Topology build(List<String> lines) {
        Script script = new Script();
        for (String line : lines) script.run(line);
        return script.builder.build();
    }

    /** One line: [result =] operator input... [option value]... */
    private void run(String line) {
        List<String> words = new ArrayList<>(List.of(line.trim().split(" +")));
        String result = null;
        if (words.size() > 2 && words.get(1).equals("=")) {
            result = words.get(0);
            words = words.subList(2, words.size());
        }
        Call call = new Call(line, words);
        Object made = apply(call);
        call.finished();
        if (result != null) results.put(result, made);
    }

    /** The words of a line that were not asked for yet. */
    private final class Call {
        final String line;
        final String operator;
        private final List<String> inputs = new ArrayList<>();
        private final Map<String, String> options = new HashMap<>();
        private boolean serdes;

        Call(String line, List<String> words) {
            this.line = line;
            Iterator<String> it = words.iterator();
            operator = it.next();
            while (it.hasNext()) {
                String word = it.next();
                switch (word) {
                    case "as", "store", "partitions", "tumbling", "hopping", "every", "grace", "retention", "topic", "uses" ->
                        options.put(word, it.next());
                    case "serdes" -> serdes = true;
                    default -> inputs.add(word);
                }
            }
        }

        String option(String name) { return options.remove(name); }

        Duration duration(String name) { return Duration.parse("PT" + option(name)); }

        boolean is(String name) { return options.containsKey(name); }

        /** The name given by "as", or null. */
        Named named() {
            String name = option("as");
            return name == null ? null : Named.as(name);
        }

        Object input() {
            Object in = results.get(inputs.get(0));
            if (in == null) throw new IllegalStateException("no " + inputs.get(0) + ": " + line);
            inputs.remove(0);
            return in;
        }

        void finished() {
            if (!inputs.isEmpty() || !options.isEmpty()) throw new IllegalStateException("not understood: " + line);
        }
    }

    @SuppressWarnings("unchecked")
    private Object apply(Call c) {
        switch (c.operator) {
            case "stream" -> {
                String name = c.option("as");
                return name == null ? builder.stream(c.option("topic")) : builder.stream(c.option("topic"), Consumed.as(name));
            }
            case "table" -> {
                return table(c);
            }
            default -> { }
        }
        Object in = c.input();
        if (in instanceof KStream) return stream(c, (KStream<Object, Object>) in);
        if (in instanceof KTable) return table(c, (KTable<Object, Object>) in);
        if (in instanceof KGroupedStream) return aggregate(c, (KGroupedStream<Object, Object>) in);
        return branch(c, (BranchedKStream<Object, Object>) in);
    }

    /** A supplier must give a new one each time, which a lambda does not. */
    private static final class Idle implements Processor<Object, Object, Object, Object> {
        @Override
        public void process(Record<Object, Object> record) { }
    }

    private Object table(Call c) {
        String name = c.option("as");
        String store = c.option("store");
        String topic = c.option("topic");
        Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> kept = null;
        if (store != null) kept = Materialized.as(store);
        else if (c.serdes) kept = Materialized.with(null, null);
        if (name == null) return kept == null ? builder.table(topic) : builder.table(topic, kept);
        return kept == null ? builder.table(topic, Consumed.as(name)) : builder.table(topic, Consumed.as(name), kept);
    }

    @SuppressWarnings("unchecked")
    private Object stream(Call c, KStream<Object, Object> s) {
        if (c.operator.equals("join") || c.operator.equals("leftJoin")) {
            KTable<Object, Object> t = (KTable<Object, Object>) c.input();
            String name = c.option("as");
            boolean left = c.operator.equals("leftJoin");
            ValueJoiner<Object, Object, Object> joiner = (a, b) -> a;
            if (name == null) return left ? s.leftJoin(t, joiner) : s.join(t, joiner);
            Joined<Object, Object, Object> joined = Joined.as(name);
            return left ? s.leftJoin(t, joiner, joined) : s.join(t, joiner, joined);
        }
        if (c.operator.equals("merge")) {
            KStream<Object, Object> other = (KStream<Object, Object>) c.input();
            Named named = c.named();
            return named == null ? s.merge(other) : s.merge(other, named);
        }
        if (c.operator.equals("process")) {
            String[] uses = c.is("uses") ? c.option("uses").split(",") : new String[0];
            for (String store : uses) {
                if (stores.add(store)) builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store), null, null));
            }
            ProcessorSupplier<Object, Object, Object, Object> nothing = Idle::new;
            Named named = c.named();
            return named == null ? s.process(nothing, uses) : s.process(nothing, named, uses);
        }
        if (c.operator.equals("repartition")) {
            String name = c.option("as");
            String partitions = c.option("partitions");
            if (name == null && partitions == null) return s.repartition();
            Repartitioned<Object, Object> how = Repartitioned.as(name);
            return s.repartition(partitions == null ? how : how.withNumberOfPartitions(Integer.parseInt(partitions)));
        }
        if (c.operator.equals("to")) {
            String name = c.option("as");
            String topic = c.option("topic");
            if (name == null) s.to(topic);
            else s.to(topic, Produced.as(name));
            return null;
        }
        if (c.operator.equals("groupByKey")) {
            String name = c.option("as");
            return name == null ? s.groupByKey() : s.groupByKey(Grouped.as(name));
        }
        if (c.operator.equals("groupBy")) {
            String name = c.option("as");
            return name == null ? s.groupBy((k, v) -> k) : s.groupBy((k, v) -> k, Grouped.as(name));
        }
        Predicate<Object, Object> any = (k, v) -> true;
        ValueMapper<Object, Object> value = v -> v;
        ValueMapper<Object, Iterable<Object>> values = v -> List.of(v);
        KeyValueMapper<Object, Object, KeyValue<Object, Object>> pair = KeyValue::pair;
        KeyValueMapper<Object, Object, Iterable<KeyValue<Object, Object>>> pairs = (k, v) -> List.of(KeyValue.pair(k, v));
        KeyValueMapper<Object, Object, Object> key = (k, v) -> k;
        ForeachAction<Object, Object> nothing = (k, v) -> { };
        Named named = c.named();
        boolean plain = named == null;
        return switch (c.operator) {
            case "filter" -> plain ? s.filter(any) : s.filter(any, named);
            case "filterNot" -> plain ? s.filterNot(any) : s.filterNot(any, named);
            case "map" -> plain ? s.map(pair) : s.map(pair, named);
            case "mapValues" -> plain ? s.mapValues(value) : s.mapValues(value, named);
            case "flatMap" -> plain ? s.flatMap(pairs) : s.flatMap(pairs, named);
            case "flatMapValues" -> plain ? s.flatMapValues(values) : s.flatMapValues(values, named);
            case "selectKey" -> plain ? s.selectKey(key) : s.selectKey(key, named);
            case "peek" -> plain ? s.peek(nothing) : s.peek(nothing, named);
            case "split" -> plain ? s.split() : s.split(named);
            case "foreach" -> {
                if (plain) s.foreach(nothing);
                else s.foreach(nothing, named);
                yield null;
            }
            default -> throw new IllegalStateException("no such operator of a stream: " + c.line);
        };
    }

    private Object table(Call c, KTable<Object, Object> t) {
        Predicate<Object, Object> any = (k, v) -> true;
        ValueMapper<Object, Object> value = v -> v;
        Named named = c.named();
        boolean plain = named == null;
        return switch (c.operator) {
            case "filter" -> plain ? t.filter(any) : t.filter(any, named);
            case "filterNot" -> plain ? t.filterNot(any) : t.filterNot(any, named);
            case "mapValues" -> plain ? t.mapValues(value) : t.mapValues(value, named);
            case "toStream" -> plain ? t.toStream() : t.toStream(named);
            default -> throw new IllegalStateException("no such operator of a table: " + c.line);
        };
    }

    private Object aggregate(Call c, KGroupedStream<Object, Object> g) {
        Named named = c.named();
        boolean plain = named == null;
        String store = c.option("store");
        if (c.operator.equals("countWindows")) {
            TimeWindows windows = windows(c);
            TimeWindowedKStream<Object, Object> w = g.windowedBy(windows);
            if (store == null) return plain ? w.count() : w.count(named);
            Materialized<Object, Long, WindowStore<Bytes, byte[]>> kept = Materialized.as(store);
            return plain ? w.count(kept) : w.count(named, kept);
        }
        if (c.operator.equals("count")) {
            if (store == null) return plain ? g.count() : g.count(named);
            Materialized<Object, Long, KeyValueStore<Bytes, byte[]>> kept = Materialized.as(store);
            return plain ? g.count(kept) : g.count(named, kept);
        }
        if (c.operator.equals("reduceWindows") || c.operator.equals("aggregateWindows")) {
            return aggregateWindows(c, g.windowedBy(windows(c)), store, named);
        }
        // The calls without a Materialized take no name.
        Materialized<Object, Object, KeyValueStore<Bytes, byte[]>> kept = null;
        if (store != null) kept = Materialized.as(store);
        else if (c.serdes || !plain) kept = Materialized.with(null, null);
        if (c.operator.equals("reduce")) {
            Reducer<Object> last = (a, b) -> b;
            if (kept == null) return g.reduce(last);
            return plain ? g.reduce(last, kept) : g.reduce(last, named, kept);
        }
        if (c.operator.equals("aggregate")) {
            Initializer<Object> empty = () -> "";
            Aggregator<Object, Object, Object> last = (k, v, a) -> v;
            if (kept == null) return g.aggregate(empty, last);
            return plain ? g.aggregate(empty, last, kept) : g.aggregate(empty, last, named, kept);
        }
        throw new IllegalStateException("no such operator of a group: " + c.line);
    }

    private Object aggregateWindows(Call c, TimeWindowedKStream<Object, Object> w, String store, Named named) {
        Materialized<Object, Object, WindowStore<Bytes, byte[]>> kept = null;
        if (store != null) kept = Materialized.as(store);
        else if (c.serdes || named != null) kept = Materialized.with(null, null);
        if (c.is("retention")) kept = kept.withRetention(c.duration("retention"));
        if (c.operator.equals("reduceWindows")) {
            Reducer<Object> last = (a, b) -> b;
            if (kept == null) return w.reduce(last);
            return named == null ? w.reduce(last, kept) : w.reduce(last, named, kept);
        }
        Initializer<Object> empty = () -> "";
        Aggregator<Object, Object, Object> last = (k, v, a) -> v;
        if (kept == null) return w.aggregate(empty, last);
        return named == null ? w.aggregate(empty, last, kept) : w.aggregate(empty, last, named, kept);
    }

    private TimeWindows windows(Call c) {
        Duration size;
        Duration advance = null;
        if (c.is("tumbling")) {
            size = c.duration("tumbling");
        } else {
            size = c.duration("hopping");
            advance = c.duration("every");
        }
        TimeWindows w = c.is("grace") ? TimeWindows.ofSizeAndGrace(size, c.duration("grace")) : TimeWindows.ofSizeWithNoGrace(size);
        return advance == null ? w : w.advanceBy(advance);
    }

    private Object branch(Call c, BranchedKStream<Object, Object> split) {
        Predicate<Object, Object> any = (k, v) -> true;
        String name = c.option("as");
        List<KStream<Object, Object>> made = new ArrayList<>();
        Branched<Object, Object> branched = name == null ? Branched.withConsumer(made::add) : Branched.withConsumer(made::add, name);
        switch (c.operator) {
            case "branch" -> split.branch(any, branched);
            case "defaultBranch" -> split.defaultBranch(branched);
            default -> throw new IllegalStateException("no such operator of a split: " + c.line);
        }
        return made.get(0);
    }
}
