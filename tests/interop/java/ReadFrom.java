import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads partition 0 of a topic from each of the given offsets to its end: "from offset key value", "-" for none. */
public class ReadFrom {
    static final long DEADLINE_MS = 120_000;

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("auto.offset.reset", "none");
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            consumer.assign(List.of(partition));
            for (int number = 2; number < arguments.length; number++) {
                read(consumer, partition, Long.parseLong(arguments[number]));
            }
        }
    }

    static void read(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long from) {
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        consumer.seek(partition, from);
        while (consumer.position(partition) < end) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("at " + consumer.position(partition) + ", not at the end, " + end);
            }
            for (var record : consumer.poll(Duration.ofMillis(200))) {
                System.out.printf("%d %d %s %s%n", from, record.offset(), text(record.key()), text(record.value()));
            }
        }
    }

    static String text(byte[] bytes) {
        return bytes == null ? "-" : new String(bytes, StandardCharsets.UTF_8);
    }
}
