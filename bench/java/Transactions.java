// Transactions one after another, each of RECORDS records of 100 bytes, by one producer. Prints what
// bench/confluent.py prints: "begin", then "end {"seconds": ..., "commits": [...]}", the latter in seconds.
//
//     java -cp ... Transactions.java BOOTSTRAP TOPIC TRANSACTIONAL_ID RECORDS COUNT WARM_UP

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

class Transactions {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int records = Integer.parseInt(arguments[3]);
        int count = Integer.parseInt(arguments[4]);
        int warmUp = Integer.parseInt(arguments[5]);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "transactional.id", arguments[2], "linger.ms", "0");
        var bytes = new ByteArraySerializer();
        byte[] value = new byte[100];
        List<Double> commits = new ArrayList<>();
        try (var producer = new KafkaProducer<byte[], byte[]>(settings, bytes, bytes)) {
            producer.initTransactions();
            for (int i = 0; i < warmUp; i++) {
                once(producer, topic, value, records);
            }
            System.out.println("begin");
            long started = System.nanoTime();
            for (int i = 0; i < count; i++) {
                commits.add(once(producer, topic, value, records) / 1e9);
            }
            double seconds = (System.nanoTime() - started) / 1e9;
            String told = commits.stream().map(one -> String.format(Locale.ROOT, "%.6f", one))
                .collect(Collectors.joining(", "));
            System.out.printf(Locale.ROOT, "end {\"seconds\": %.6f, \"commits\": [%s]}%n", seconds, told);
        }
    }

    /** Nanoseconds that the commit took, once all records were acknowledged. */
    static long once(KafkaProducer<byte[], byte[]> producer, String topic, byte[] value, int records)
            throws Exception {
        producer.beginTransaction();
        List<Future<?>> sent = new ArrayList<>();
        for (int i = 0; i < records; i++) {
            sent.add(producer.send(new ProducerRecord<>(topic, value)));
        }
        for (Future<?> each : sent) {
            each.get();
        }
        long acknowledged = System.nanoTime();
        producer.commitTransaction();
        return System.nanoTime() - acknowledged;
    }
}
