/*
 * Apache Kafka's own cleaner, over directories that others wrote, at times that others choose.
 *
 * Each line of the standard input is a command (JSON), each line of the standard output its answer: one JVM
 * serves many workloads. `clean` opens a partition's directory as a node does after a clean stop, runs the
 * Cleaner once, from the offset that is given to the one that LogCleanerManager finds, and closes the log.
 * What is left is what Kafka leaves; with `sweep`, also the files are gone that it removes after a while. With
 * `only_open` nothing is cleaned, and with `after_crash` the log is recovered as after one.
 */

import java.io.*;
import java.lang.management.ManagementFactory;
import java.lang.reflect.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Supplier;

import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.*;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class KafkaCleaner {
    static final ObjectMapper JSON = new ObjectMapper();
    static final com.sun.management.OperatingSystemMXBean PROCESS =
        (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    final Clock clock = new Clock();
    final Later later = new Later();
    final BrokerTopicStats stats = new BrokerTopicStats();
    final Throttler unthrottled = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner", "bytes", clock);

    public static void main(String[] arguments) throws Exception {
        KafkaCleaner cleaner = new KafkaCleaner();
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                cleaner.clean(JSON.readTree(line), answer);
            } catch (Throwable error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                answer.put("error", trace.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
    }

    void clean(JsonNode command, ObjectNode answer) throws Exception {
        clock.nowMs = command.get("now_ms").asLong();
        UnifiedLog log = open(command);
        try {
            log.updateHighWatermark(command.hasNonNull("high_watermark")
                ? command.get("high_watermark").asLong() : log.logEndOffset());
            answer.put("segments", log.numberOfSegments());
            answer.put("log_end_offset", log.logEndOffset());
            if (command.path("only_open").asBoolean()) return;
            LogToClean toClean = plan(log, command);
            answer.put("first_dirty_offset", toClean.firstDirtyOffset());
            answer.put("first_uncleanable_offset", toClean.firstUncleanableOffset());
            answer.put("clean_bytes", toClean.cleanBytes());
            answer.put("cleanable_bytes", toClean.cleanableBytes());
            if (toClean.firstUncleanableOffset() > toClean.firstDirtyOffset()) run(toClean, command, answer);
        } finally {
            if (command.path("sweep").asBoolean(true)) later.run();
            else later.tasks.clear();
            log.close();
        }
    }

    UnifiedLog open(JsonNode command) throws Exception {
        Map<String, String> settings = new HashMap<>(Map.of("cleanup.policy", "compact"));
        command.get("config").properties().forEach(each -> settings.put(each.getKey(), each.getValue().asText()));
        int producerExpirationMs = command.path("producer_expiration_ms").asInt(86_400_000);
        return UnifiedLog.create(new File(command.get("directory").asText()), new LogConfig(settings),
            command.path("log_start_offset").asLong(0), command.path("recovery_point").asLong(Long.MAX_VALUE),
            later, stats, clock, 900_000, new ProducerStateManagerConfig(producerExpirationMs, false), 600_000,
            new LogDirFailureChannel(1), !command.path("after_crash").asBoolean(), Optional.empty());
    }

    /** From the cleaner's checkpoint, or the start, to the first offset that cannot be cleaned now. */
    LogToClean plan(UnifiedLog log, JsonNode command) throws Exception {
        Optional<Long> checkpoint = command.hasNonNull("first_dirty_offset")
            ? Optional.of(command.get("first_dirty_offset").asLong()) : Optional.empty();
        Method method = LogCleanerManager.class.getDeclaredMethod(
            "cleanableOffsets", UnifiedLog.class, Optional.class, long.class);
        method.setAccessible(true);
        Object offsets = method.invoke(null, log, checkpoint, clock.nowMs);
        return new LogToClean(log, number(offsets, "firstDirtyOffset"), number(offsets, "firstUncleanableDirtyOffset"), false);
    }

    static long number(Object record, String component) throws Exception {
        Method method = record.getClass().getDeclaredMethod(component);
        method.setAccessible(true);
        return (long) method.invoke(record);
    }

    void run(LogToClean toClean, JsonNode command, ObjectNode answer) throws Exception {
        int ioBufferBytes = command.path("io_buffer_bytes").asInt(512 << 10);
        OffsetMap offsets = new SkimpyOffsetMap(command.get("dedupe_bytes").asInt());
        Cleaner cleaner = new Cleaner(0, offsets, ioBufferBytes, Math.max(ioBufferBytes, 1 << 20),
            command.path("load_factor").asDouble(0.9), unthrottled, clock, partition -> { });
        long cpuBefore = PROCESS.getProcessCpuTime(), before = System.nanoTime();
        Map.Entry<Long, CleanerStats> done = cleaner.doClean(toClean, clock.nowMs);
        answer.put("elapsed_s", (System.nanoTime() - before) / 1e9);
        answer.put("cpu_s", (PROCESS.getProcessCpuTime() - cpuBefore) / 1e9);
        answer.put("end_offset", done.getKey());
        answer.put("records_read", done.getValue().messagesRead());
        answer.put("records_kept", done.getValue().messagesWritten());
        answer.put("bytes_read", done.getValue().bytesRead());
        answer.put("bytes_kept", done.getValue().bytesWritten());
    }

    /** Stands still, except for intervals. */
    static class Clock implements Time {
        long nowMs;

        public long milliseconds() {
            return nowMs;
        }

        public long nanoseconds() {
            return System.nanoTime();
        }

        public void sleep(long ms) {
            throw new IllegalStateException("nobody sleeps here");
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new IllegalStateException("nobody waits here");
        }
    }

    /** Keeps what Kafka wants to do later, until it is told to; what it would do again and again is never done. */
    static class Later implements Scheduler {
        final List<Runnable> tasks = new ArrayList<>();

        public void startup() { }

        public void shutdown() { }

        public void resizeThreadPool(int size) { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0) tasks.add(task);
            return new Never();
        }

        void run() {
            List<Runnable> due = new ArrayList<>(tasks);
            tasks.clear();
            due.forEach(Runnable::run);
        }
    }

    static class Never extends FutureTask<Void> implements ScheduledFuture<Void> {
        Never() {
            super(() -> null);
        }

        public long getDelay(TimeUnit unit) {
            return 0;
        }

        public int compareTo(Delayed other) {
            return 0;
        }
    }
}
