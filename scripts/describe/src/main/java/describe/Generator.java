package describe;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.function.Predicate;

/** Random scripts. One seed makes one script, on every machine. */
final class Generator {
    /** What a script is mostly about: operators, each as often as it is listed. */
    enum Flavour {
        STATELESS("stream stream filter filter filterNot map mapValues flatMap flatMapValues selectKey peek foreach to to merge merge "
            + "split branch branch branch defaultBranch"),
        AGGREGATIONS("stream filter map selectKey mapValues groupBy groupBy groupByKey groupByKey count count count reduce reduce "
            + "aggregate aggregate toStream toStream toStream repartition to to merge peek"),
        WINDOWS("stream filter map selectKey groupBy groupByKey groupByKey countWindows countWindows countWindows count toStream toStream "
            + "toStream tableFilter tableMapValues to repartition foreach mapValues merge"),
        JOINS("stream table table filter map selectKey selectKey mapValues flatMap merge join join join leftJoin leftJoin tableFilter "
            + "tableMapValues toStream groupByKey count aggregate to to repartition"),
        MIXED("stream stream table table filter filterNot map mapValues flatMap flatMapValues selectKey selectKey peek foreach to to to "
            + "merge merge split branch branch defaultBranch groupBy groupBy groupByKey groupByKey repartition count count reduce "
            + "aggregate countWindows countWindows toStream toStream toStream toStream join join join leftJoin leftJoin tableFilter "
            + "tableFilterNot tableMapValues"),
        PROCESSORS("stream stream table filter map mapValues selectKey process process process process process merge groupBy groupByKey "
            + "count countWindows toStream join to to repartition peek split branch"),
        WINDOW_AGGREGATES("stream filter map selectKey groupBy groupByKey groupByKey countWindows reduceWindows reduceWindows reduceWindows "
            + "aggregateWindows aggregateWindows aggregateWindows count reduce toStream toStream toStream tableFilter tableMapValues to merge");

        final String[] operators;

        Flavour(String operators) { this.operators = operators.split(" "); }
    }

    private enum Kind { STREAM, TABLE, GROUP, SPLIT }

    /** A result. Keys are texts or windowed texts, values texts or counts: a typed DSL must be able to follow. */
    private record Result(String label, Kind kind, boolean windowed, boolean counts) { }

    private static final Predicate<Result> JOINABLE = r -> r.kind == Kind.TABLE && !r.windowed;

    private static final String[] TOPICS = {
        "orders", "payments", "stores", "users", "clicks", "rates", "alerts", "parcels", "refunds", "carts", "prices", "visits"};
    private static final String[] NAMES = {
        "paid", "large", "by-store", "by-user", "enriched", "cleaned", "checked", "recent", "daily", "latest", "north", "flagged",
        "Totals", "per.minute", "first_seen", "x", "everything-that-was-ever-sent", "KSTREAM-like1-0000000007"};
    private static final String[] DURATIONS = {"10s", "1m", "5m", "1h"};

    private final Random random;
    private final Flavour flavour;
    private final List<String> lines = new ArrayList<>();
    private final List<Result> results = new ArrayList<>();
    private final Set<String> used = new HashSet<>();
    private final Set<Result> closed = new HashSet<>(); // splits that have their default branch
    private final List<String> topics = new ArrayList<>(); // those that a sink can write again
    private final List<String> shared = new ArrayList<>(); // stores of processors

    private Generator(Flavour flavour, Random random) {
        this.flavour = flavour;
        this.random = random;
    }

    static List<String> script(Flavour flavour, Random random) {
        Generator g = new Generator(flavour, random);
        int size = 4 + random.nextInt(random.nextInt(8) == 0 ? 45 : 22);
        while (g.lines.size() < size) g.step(flavour.operators[random.nextInt(flavour.operators.length)]);
        return g.lines;
    }

    private void step(String operator) {
        Result in = null;
        switch (operator) {
            case "stream", "table" -> {
                // More inputs than that make small graphs side by side.
                if (!results.isEmpty() && sources() > lines.size() / 4) return;
            }
            case "branch", "defaultBranch" -> in = pick(r -> r.kind == Kind.SPLIT && !closed.contains(r));
            case "toStream", "tableFilter", "tableFilterNot", "tableMapValues" -> in = pick(r -> r.kind == Kind.TABLE);
            case "count", "countWindows", "reduce", "aggregate", "reduceWindows", "aggregateWindows" -> in = pick(r -> r.kind == Kind.GROUP);
            case "to", "repartition", "groupByKey", "join", "leftJoin" -> in = pick(r -> r.kind == Kind.STREAM && !r.windowed);
            default -> in = pick(r -> r.kind == Kind.STREAM);
        }
        if (in == null && !operator.equals("stream") && !operator.equals("table")) return;
        switch (operator) {
            case "stream" -> add(Kind.STREAM, false, false, "stream topic " + topic() + as());
            case "table" -> {
                String topic = topic();
                int store = random.nextInt(4);
                String kept = store == 0 ? "" : store == 1 ? " serdes" : " store " + name();
                add(Kind.TABLE, false, false, "table topic " + topic + kept + as());
            }
            case "branch" -> add(Kind.STREAM, in.windowed, in.counts, "branch " + in.label + branchName());
            case "defaultBranch" -> {
                closed.add(in);
                add(Kind.STREAM, in.windowed, in.counts, "defaultBranch " + in.label + branchName());
            }
            case "split" -> add(Kind.SPLIT, in.windowed, in.counts, "split " + in.label + as());
            case "filter", "filterNot", "peek" -> add(Kind.STREAM, in.windowed, in.counts, operator + " " + in.label + as());
            case "map", "flatMap" -> add(Kind.STREAM, false, false, operator + " " + in.label + as());
            case "selectKey" -> add(Kind.STREAM, false, in.counts, "selectKey " + in.label + as());
            case "mapValues", "flatMapValues" -> add(Kind.STREAM, in.windowed, false, operator + " " + in.label + as());
            case "foreach" -> lines.add("foreach " + in.label + as());
            case "to" -> {
                // Two sinks may write one topic, and a sink may write a topic that is read elsewhere.
                String topic = random.nextInt(6) > 0 ? topic() : topics.get(random.nextInt(topics.size()));
                lines.add("to " + in.label + " topic " + topic + as());
            }
            case "merge" -> {
                Result one = in;
                Result other = pick(r -> r.kind == Kind.STREAM && r.windowed == one.windowed && r.counts == one.counts);
                add(Kind.STREAM, in.windowed, in.counts, "merge " + in.label + " " + other.label + as());
            }
            case "repartition" -> {
                String partitions = random.nextInt(3) == 0 ? " partitions " + (1 + random.nextInt(6)) : "";
                add(Kind.STREAM, false, in.counts, "repartition " + in.label + partitions + topicName());
            }
            case "process" -> add(Kind.STREAM, false, false, "process " + in.label + uses() + as());
            case "groupBy" -> add(Kind.GROUP, false, in.counts, "groupBy " + in.label + as());
            case "groupByKey" -> add(Kind.GROUP, false, in.counts, "groupByKey " + in.label + topicName());
            case "count" -> add(Kind.TABLE, false, true, "count " + in.label + store(false) + as());
            case "reduce" -> add(Kind.TABLE, false, in.counts, "reduce " + in.label + store(true) + as());
            case "aggregate" -> add(Kind.TABLE, false, false, "aggregate " + in.label + store(true) + as());
            case "countWindows" -> add(Kind.TABLE, true, true, "countWindows " + in.label + windows() + store(false) + as());
            case "reduceWindows" -> add(Kind.TABLE, true, in.counts, "reduceWindows " + in.label + windows() + kept() + as());
            case "aggregateWindows" -> add(Kind.TABLE, true, false, "aggregateWindows " + in.label + windows() + kept() + as());
            case "toStream" -> add(Kind.STREAM, in.windowed, in.counts, "toStream " + in.label + as());
            case "tableFilter" -> add(Kind.TABLE, in.windowed, in.counts, "filter " + in.label + as());
            case "tableFilterNot" -> add(Kind.TABLE, in.windowed, in.counts, "filterNot " + in.label + as());
            case "tableMapValues" -> add(Kind.TABLE, in.windowed, false, "mapValues " + in.label + as());
            case "join", "leftJoin" -> {
                if (pick(JOINABLE) == null) return;
                // Often right below a new key, and more than once: then the repartition topic may be used again.
                if (random.nextBoolean()) {
                    step("selectKey");
                    in = results.get(results.size() - 1);
                }
                do {
                    add(Kind.STREAM, false, false, operator + " " + in.label + " " + pick(JOINABLE).label + as());
                } while (random.nextInt(3) == 0);
            }
            default -> throw new IllegalStateException(operator);
        }
    }

    private long sources() {
        return lines.stream().filter(l -> l.contains("= stream ") || l.contains("= table ")).count();
    }

    private void add(Kind kind, boolean windowed, boolean counts, String call) {
        String letter = switch (kind) {
            case STREAM -> "s";
            case TABLE -> "t";
            case GROUP -> "g";
            case SPLIT -> "x";
        };
        String label = letter + (lines.size() + 1);
        results.add(new Result(label, kind, windowed, counts));
        lines.add(label + " = " + call);
    }

    /** The latest that fits, or any: both chains and diamonds come of it. */
    private Result pick(Predicate<Result> fits) {
        List<Result> all = results.stream().filter(fits).toList();
        if (all.isEmpty()) return null;
        return all.get(random.nextInt(5) < 2 ? all.size() - 1 : random.nextInt(all.size()));
    }

    /** Every fourth operator has a name. */
    private String as() { return random.nextInt(4) == 0 ? " as " + name() : ""; }

    /** A name that makes a topic: rather often, and at times one that says so already. */
    private String topicName() {
        if (random.nextInt(2) == 0) return "";
        return " as " + name() + (random.nextInt(6) == 0 ? "-repartition" : "");
    }

    /** Appended to the split's name, so often with a dash. */
    private String branchName() {
        if (random.nextInt(3) > 0) return "";
        return " as " + (random.nextBoolean() ? "-" : "") + name();
    }

    private String store(boolean serdes) {
        return switch (random.nextInt(4)) {
            case 0 -> "";
            case 1 -> serdes ? " serdes" : "";
            default -> " store " + name();
        };
    }

    /** A store that keeps its windows for longer than any here lasts. */
    private String kept() {
        String store = store(true);
        return store.isEmpty() || random.nextBoolean() ? store : store + " retention 3h";
    }

    /** The stores of a processor: none, some of its own, some that another one has too. */
    private String uses() {
        Set<String> stores = new LinkedHashSet<>();
        for (int n = random.nextInt(4); n > 0; n--) {
            if (shared.isEmpty() || random.nextInt(5) < 3) shared.add(name());
            stores.add(shared.get(random.nextInt(shared.size())));
        }
        return stores.isEmpty() ? "" : " uses " + String.join(",", stores);
    }

    private String windows() {
        String size = random.nextInt(3) == 0 ? " hopping 5m every 1m" : " tumbling " + DURATIONS[random.nextInt(DURATIONS.length)];
        return size + (random.nextBoolean() ? " grace " + DURATIONS[random.nextInt(DURATIONS.length)] : "");
    }

    private String topic() {
        String topic = unused(TOPICS);
        topics.add(topic);
        return topic;
    }

    private String name() { return unused(NAMES); }

    private String unused(String[] pool) {
        String base = pool[random.nextInt(pool.length)];
        String name = base;
        for (int i = 2; !used.add(name); i++) name = base + "-" + i;
        return name;
    }
}
