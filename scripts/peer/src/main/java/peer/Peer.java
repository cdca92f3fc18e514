package peer;

import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * One instance of the lab's application on Kafka Streams, for comparison with `lab counter`, whose command line it takes:
 *
 * <pre>NAME [key=value ...]     runs until SIGTERM, which stops it cleanly
 * --describe [key=value ...]  prints the topology</pre>
 *
 * Properties are those of Kafka Streams; lab.topic.prefix and lab.output.suffix are the lab's, peer.leave=true makes a clean stop
 * leave the group, as `lab counter` does. The defaults are those of `lab counter` where the bytes in the topics depend on them.
 */
public final class Peer {
    private static final Duration STOP = Duration.ofSeconds(30);

    private Peer() {
    }

    public static void main(String[] args) {
        if (args.length == 0) {
            System.err.println("usage: NAME|--describe [key=value ...]");
            System.exit(64);
        }
        var props = new Properties();
        props.put(StreamsConfig.APPLICATION_ID_CONFIG, "order-counter");
        props.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "127.0.0.1:9092");
        props.put(StreamsConfig.STATE_DIR_CONFIG, "state/" + args[0]);
        props.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "1000");
        props.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, "86400000");
        props.put(StreamsConfig.WINDOW_STORE_CHANGE_LOG_ADDITIONAL_RETENTION_MS_CONFIG, "3153600000000");
        for (var i = 1; i < args.length; i++) {
            var pair = args[i].split("=", 2);
            props.put(pair[0], pair[1]);
        }
        var lab = new Lab(own(props, "lab.topic.prefix"), own(props, "lab.output.suffix"));
        var leave = Boolean.parseBoolean(own(props, "peer.leave"));
        var topology = lab.build();
        if (args[0].equals("--describe")) {
            System.out.print(topology.describe());
            return;
        }
        run(args[0], new KafkaStreams(topology, props), leave);
    }

    /** Takes a property that is none of Kafka Streams'. */
    private static String own(Properties props, String name) {
        var value = (String) props.remove(name);
        return value == null ? "" : value;
    }

    private static void run(String name, KafkaStreams streams, boolean leave) {
        streams.setStateListener((now, before) -> System.out.println("state " + name + " " + before + " -> " + now));
        streams.setGlobalStateRestoreListener(restores(name));
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("failed " + name + " " + error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        var membership = leave ? CloseOptions.GroupMembershipOperation.LEAVE_GROUP : CloseOptions.GroupMembershipOperation.REMAIN_IN_GROUP;
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            var closed = streams.close(CloseOptions.groupMembershipOperation(membership).withTimeout(STOP));
            System.out.println((closed ? "stopped " : "not stopped in time ") + name);
        }));
        streams.start();
    }

    private static StateRestoreListener restores(String name) {
        return new StateRestoreListener() {
            @Override
            public void onRestoreStart(TopicPartition changelog, String store, long from, long to) {
                System.out.println("restore start instance=" + name + " store=" + store + " partition=" + changelog
                    + " from=" + from + " to=" + to);
            }

            @Override
            public void onBatchRestored(TopicPartition changelog, String store, long end, long restored) {
            }

            @Override
            public void onRestoreEnd(TopicPartition changelog, String store, long restored) {
                System.out.println("restore end instance=" + name + " store=" + store + " partition=" + changelog + " restored=" + restored);
            }
        };
    }
}
