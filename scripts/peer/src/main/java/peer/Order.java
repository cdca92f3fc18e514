package peer;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;

/** An order event, as far as the topology looks at it. */
record Order(String storeId, String status, long amount, long occurredAt) {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Reads the JSON of an order. One that is none ends the application, as it does in Kafka Streams by default. */
    static Order of(String value) {
        try {
            var fields = JSON.readTree(value);
            return new Order(fields.required("storeId").textValue(), fields.required("status").textValue(),
                fields.required("amount").longValue(), fields.required("occurredAt").longValue());
        } catch (JsonProcessingException e) {
            throw new IllegalArgumentException("no order: " + value, e);
        }
    }

    boolean placed() {
        return status.equals("PLACED");
    }

    boolean highValue() {
        return amount >= 100_000;
    }
}
