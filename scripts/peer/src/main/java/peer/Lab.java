package peer;

import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;

/** The lab's topology, call by call as topology/topology.go has it: the order of the calls names the nodes. */
record Lab(String prefix, String suffix) {
    private static final Serde<String> TEXT = Serdes.String();

    Topology build() {
        var builder = new StreamsBuilder();
        var written = Produced.with(TEXT, TEXT);

        var placed = builder
            .stream(prefix + "orders.placed", Consumed.with(TEXT, TEXT)
                .withTimestampExtractor((order, time) -> Order.of((String) order.value()).occurredAt()))
            .filter((id, order) -> Order.of(order).placed());
        placed
            .filter((id, order) -> Order.of(order).highValue())
            .map((id, order) -> KeyValue.pair(Order.of(order).storeId(), Long.toString(Order.of(order).amount())))
            .to(output("analytics.high-value-orders"), written);

        var status = builder.table(prefix + "orders.status", Consumed.with(TEXT, TEXT), Materialized.as("order-status"));
        placed
            .join(status, (order, current) -> current + "|" + order, Joined.with(TEXT, TEXT, TEXT))
            .to(output("analytics.orders-with-status"), written);

        var byStore = placed
            .map((id, order) -> KeyValue.pair(Order.of(order).storeId(), order))
            .repartition(Repartitioned.with(TEXT, TEXT).withName("orders-by-store").withNumberOfPartitions(2))
            .groupByKey(Grouped.with(TEXT, TEXT));
        byStore
            .count(Materialized.as("orders-per-store"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(output("analytics.orders-per-store"), written);
        byStore
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofSeconds(30)))
            .count(Materialized.as("orders-per-store-minute"))
            .toStream()
            .map((minute, count) -> KeyValue.pair(minute.key() + "|" + minute.window().startTime(), Long.toString(count)))
            .to(output("analytics.orders-per-store-minute"), written);

        return builder.build();
    }

    private String output(String topic) {
        return prefix + topic + suffix;
    }
}
