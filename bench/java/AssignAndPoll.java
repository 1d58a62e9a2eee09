// Reads a topic by assignment from its first record until COUNT have come; Kafka's own ConsumerPerformance
// can only join a group. Prints what bench/confluent.py prints: "begin", then "end {"seconds": ...}".
//
//     java -cp ... AssignAndPoll.java BOOTSTRAP TOPIC PARTITIONS COUNT

import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

class AssignAndPoll {
    static final long SILENCE_DEADLINE_NS = 30_000_000_000L;

    public static void main(String[] arguments) {
        String topic = arguments[1];
        long left = Long.parseLong(arguments[3]);
        List<TopicPartition> partitions = IntStream.range(0, Integer.parseInt(arguments[2]))
            .mapToObj(partition -> new TopicPartition(topic, partition)).toList();
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "enable.auto.commit", "false", "max.poll.records", "10000");
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            consumer.partitionsFor(topic);
            System.out.println("begin");
            long started = System.nanoTime();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long heard = started;
            while (left > 0) {
                int count = consumer.poll(Duration.ofMillis(500)).count();
                left -= count;
                long now = System.nanoTime();
                if (count > 0) {
                    heard = now;
                } else if (now - heard > SILENCE_DEADLINE_NS) {
                    throw new IllegalStateException(left + " records are missing");
                }
            }
            double seconds = (System.nanoTime() - started) / 1e9;
            System.out.println(String.format(Locale.ROOT, "end {\"seconds\": %.6f}", seconds));
        }
    }
}
