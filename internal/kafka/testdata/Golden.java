import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import java.util.*;

/**
 * Writes what the java-*.batch files hold: args are a bootstrap address and a prefix of topics with one partition each, PREFIXnone,
 * PREFIXgzip and so on. The files are the record batches of a fetch of these topics from offset 0, read from Apache Kafka 4.3.1.
 */
public class Golden {
  static byte[] b(String s) { return s == null ? null : s.getBytes(java.nio.charset.StandardCharsets.UTF_8); }
  static ProducerRecord<byte[],byte[]> r(String topic, long ts, String k, String v, String... h) {
    var p = new ProducerRecord<>(topic, 0, ts, b(k), b(v));
    for (int i = 0; i < h.length; i += 2) p.headers().add(new RecordHeader(h[i], b(h[i+1])));
    return p;
  }
  public static void main(String[] a) throws Exception {
    for (String codec : new String[]{"none","gzip","snappy","lz4","zstd"}) {
      var c = new Properties();
      c.put("bootstrap.servers", a[0]); c.put("compression.type", codec); c.put("linger.ms", 3000); c.put("batch.size", 100000);
      if (codec.equals("none")) c.put("transactional.id", "golden-" + System.nanoTime());
      try (var p = new KafkaProducer<>(c, new ByteArraySerializer(), new ByteArraySerializer())) {
        String t = a[1] + codec;
        boolean txn = codec.equals("none");
        if (txn) { p.initTransactions(); p.beginTransaction(); }
        p.send(r(t, 1789207200000L, "ord-1000", "{\"orderId\":\"ord-1000\",\"storeId\":\"store-17\",\"status\":\"PLACED\",\"amount\":5000,\"occurredAt\":1789207200000}"));
        p.send(r(t, 1789207200200L, null, null));
        p.send(r(t, 1789207199000L, "", "", "h1", "a", "h1", null, "żółw", ""));
        p.send(r(t, 0L, "store-17", "plain value plain value plain value plain value plain value plain value plain value plain value plain value"));
        p.flush();
        if (txn) {
          p.commitTransaction();
          p.beginTransaction(); p.send(r(t, 5L, "k", "aborted")); p.flush(); p.abortTransaction();
        }
      }
    }
  }
}
