package describe;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.TopologyException;

/** Writes the test data: arguments OUTPUT-FOLDER REFUSED-SCRIPTS, or --script FILE to describe one script. */
public final class Main {
    private static final int PER_FLAVOUR = 50;

    private static final String LANGUAGE = """
        # Made by scripts/describe/run.sh with the Java DSL of Kafka Streams 4.3.1, no optimization. Do not edit: run it again.
        #
        # A script has one operator call a line, in the order of the calls: [result =] operator input... [option value]...
        #   as NAME        the operator's name (Named, Consumed, Produced, Joined, Grouped, Repartitioned, Branched)
        #   store NAME     the name of its store (Materialized.as)
        #   retention D    how long that store keeps a window (Materialized.withRetention)
        #   uses A,B       the stores of a processor, each added to the builder when first named
        #   serdes         no name for the store, but a Materialized.with(serdes)
        # Results are named after what they are: s a stream, t a table, g a group, x a split.
        """;

    public static void main(String[] args) throws IOException {
        if (args[0].equals("--script")) {
            System.out.print(Script.build(Files.readAllLines(Path.of(args[1]))).describe());
            return;
        }
        Path out = Path.of(args[0]);
        for (Generator.Flavour flavour : Generator.Flavour.values()) {
            String name = flavour.name().toLowerCase(Locale.ROOT);
            Files.writeString(out.resolve(name + ".txt"), generated(flavour, name));
        }
        Files.writeString(out.resolve("refused.txt"), refused(Files.readString(Path.of(args[1]))));
    }

    private static String generated(Generator.Flavour flavour, String name) {
        StringBuilder text = new StringBuilder(LANGUAGE);
        text.append("# Between the double fences: Topology.describe(), byte for byte.\n\n");
        for (int i = 1; i <= PER_FLAVOUR; i++) {
            int seed = 1000 * (flavour.ordinal() + 1) + i;
            Random random = new Random(seed);
            Topology topology = null;
            List<String> script = null;
            while (topology == null) {
                script = Generator.script(flavour, random);
                try {
                    topology = Script.build(script);
                } catch (TopologyException e) {
                    // Kafka Streams refuses some of what looks well; the seed's next one takes its place.
                    System.err.println(name + " " + seed + " refused: " + e.getMessage());
                    if (Boolean.getBoolean("refused")) System.err.println(String.join("\n", script) + "\n");
                }
            }
            text.append("describe ").append(name).append("-seed-").append(seed).append('\n').append(String.join("\n", script));
            text.append("\n----\n----\n").append(topology.describe()).append("----\n----\n\n");
        }
        return text.toString();
    }

    /** Scripts by hand that build() refuses, each a paragraph under a line "# name". */
    private static String refused(String scripts) {
        StringBuilder text = new StringBuilder(LANGUAGE);
        text.append("# These are refused. Below the fence: what Kafka Streams says.\n\n");
        for (String paragraph : scripts.split("\n\n+")) {
            List<String> lines = new ArrayList<>(Arrays.asList(paragraph.strip().split("\n")));
            String name = lines.remove(0).substring(2);
            try {
                Script.build(lines);
            } catch (RuntimeException e) {
                text.append("refused ").append(name).append('\n').append(String.join("\n", lines));
                text.append("\n----\n").append(e.getMessage().strip()).append("\n\n");
                continue;
            }
            throw new IllegalStateException("not refused: " + name);
        }
        return text.toString();
    }

    private Main() { }
}
