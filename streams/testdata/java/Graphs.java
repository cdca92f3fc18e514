import java.util.*;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.state.Stores;

/** Prints random topologies and what Kafka Streams says of them. Arguments: count, seed. */
public class Graphs {
    static final String[] PREFIXES = {"KSTREAM-FILTER-", "KSTREAM-MAP-", "KSTREAM-AGGREGATE-", "KTABLE-TOSTREAM-", "KSTREAM-JOIN-"};

    static ProcessorSupplier<Object, Object, Object, Object> supplier() {
        return () -> new ContextualProcessor<>() {
            @Override public void process(org.apache.kafka.streams.processor.api.Record<Object, Object> r) { context().forward(r); }
        };
    }

    public static void main(String[] args) {
        Random rnd = new Random(Long.parseLong(args[1]));
        for (int g = 0; g < Integer.parseInt(args[0]); g++) {
            Topology t = new Topology();
            StringBuilder lines = new StringBuilder();
            List<String> inner = new ArrayList<>();
            Map<String, List<String>> users = new LinkedHashMap<>();
            int size = 3 + rnd.nextInt(g % 5 == 0 ? 70 : 22);
            for (int i = 0; i < size; i++) {
                boolean named = rnd.nextInt(4) == 0;
                int kind = inner.isEmpty() ? 0 : rnd.nextInt(10);
                String number = String.format("%010d", i);
                if (kind == 0) {
                    String name = named ? "in" + rnd.nextInt(1000) + "-" + i : "KSTREAM-SOURCE-" + number;
                    t.addSource(name, "topic-" + i);
                    lines.append("S ").append(name).append(" topic-").append(i).append('\n');
                    inner.add(name);
                    continue;
                }
                Set<String> parents = new LinkedHashSet<>();
                int n = rnd.nextInt(4) == 0 ? 2 + rnd.nextInt(2) : 1;
                for (int p = 0; p < n; p++) parents.add(inner.get(rnd.nextInt(inner.size())));
                String[] ps = parents.toArray(new String[0]);
                if (kind <= 2) {
                    String name = named ? "out" + rnd.nextInt(1000) + "-" + i : "KSTREAM-SINK-" + number;
                    t.addSink(name, "topic-" + i, ps);
                    lines.append("K ").append(name).append(" topic-").append(i).append(' ').append(String.join(" ", ps)).append('\n');
                } else {
                    String name = named ? Integer.toString(rnd.nextInt(1 << 20), 36) + "-" + i : PREFIXES[rnd.nextInt(PREFIXES.length)] + number;
                    t.addProcessor(name, supplier(), ps);
                    String store = "-";
                    if (rnd.nextInt(5) == 0) {
                        store = "store-" + rnd.nextInt(4);
                        users.computeIfAbsent(store, s -> new ArrayList<>()).add(name);
                    }
                    lines.append("P ").append(name).append(' ').append(store).append(' ').append(String.join(" ", ps)).append('\n');
                    inner.add(name);
                }
            }
            users.forEach((s, names) -> t.addStateStore(
                Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(s), Serdes.String(), Serdes.String()), names.toArray(new String[0])));
            System.out.print("#GRAPH\n" + lines + "#DESC\n" + t.describe() + "#END\n");
        }
    }
}
