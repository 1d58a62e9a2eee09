// A transactional process with Kafka's Java client, led step by step through its standard input; what it
// understands stands in tests/interop/transactor.py.
//
//     java Transactor.java HOST:PORT TRANSACTIONAL-ID TIMEOUT-MS GROUP INPUT

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transactor {
    static final long DEADLINE_MS = 60_000, TAKE_DEADLINE_MS = 100_000;

    final KafkaProducer<String, String> producer;
    final KafkaConsumer<String, String> consumer;
    final ArrayDeque<ConsumerRecord<String, String>> fetched = new ArrayDeque<>();
    final Map<TopicPartition, OffsetAndMetadata> taken = new HashMap<>();

    Transactor(String bootstrap, String id, String timeoutMs, String group, String input) {
        Properties ofProducer = new Properties();
        ofProducer.put("bootstrap.servers", bootstrap);
        ofProducer.put("transactional.id", id);
        ofProducer.put("transaction.timeout.ms", timeoutMs);
        ofProducer.put("max.block.ms", String.valueOf(DEADLINE_MS));
        ofProducer.put("linger.ms", "0");
        producer = new KafkaProducer<>(ofProducer, new StringSerializer(), new StringSerializer());
        if (group.equals("-")) {
            consumer = null;
            return;
        }
        Properties ofConsumer = new Properties();
        ofConsumer.put("bootstrap.servers", bootstrap);
        ofConsumer.put("group.id", group);
        ofConsumer.put("group.instance.id", id);
        ofConsumer.put("enable.auto.commit", "false");
        ofConsumer.put("auto.offset.reset", "earliest");
        ofConsumer.put("isolation.level", "read_committed");
        ofConsumer.put("fetch.max.wait.ms", "50");
        consumer = new KafkaConsumer<>(ofConsumer, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(input));
    }

    String take(int count) throws TimeoutException {
        List<String> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + TAKE_DEADLINE_MS;
        while (found.size() < count) {
            if (fetched.isEmpty()) {
                if (System.currentTimeMillis() > deadline) {
                    throw new TimeoutException(told(count));
                }
                consumer.poll(Duration.ofMillis(100)).forEach(fetched::add);
                continue;
            }
            ConsumerRecord<String, String> record = fetched.poll();
            TopicPartition partition = new TopicPartition(record.topic(), record.partition());
            taken.put(partition, new OffsetAndMetadata(record.offset() + 1));
            found.add(record.partition() + ":" + record.offset() + ":" + record.value());
        }
        return String.join(" ", found);
    }

    /** Where the consumer stands, with nothing to take. */
    String told(int count) {
        StringBuilder told = new StringBuilder("less than " + count + " to take; positions:");
        for (TopicPartition partition : consumer.assignment()) {
            told.append(" ").append(partition).append("@").append(consumer.position(partition, Duration.ofSeconds(5)));
        }
        return told.append("; in ").append(consumer.groupMetadata()).toString();
    }

    String send(String topic, int partition, String value) throws Exception {
        try {
            return String.valueOf(producer.send(new ProducerRecord<>(topic, partition, null, value)).get().offset());
        } catch (ExecutionException error) {
            throw (Exception) error.getCause();
        }
    }

    String run(String[] words) throws Exception {
        switch (words[0]) {
            case "init" -> producer.initTransactions();
            case "take" -> {
                return take(Integer.parseInt(words[1]));
            }
            case "begin" -> producer.beginTransaction();
            case "send" -> {
                return send(words[1], Integer.parseInt(words[2]), words[3]);
            }
            case "offsets" -> producer.sendOffsetsToTransaction(taken, consumer.groupMetadata());
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "close" -> {
                if (consumer != null) {
                    consumer.close();
                }
                producer.close();
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "";
    }

    public static void main(String[] given) throws Exception {
        Transactor transactor = new Transactor(given[0], given[1], given[2], given[3], given[4]);
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            String answer;
            try {
                answer = ("ok " + transactor.run(line.split(" "))).strip();
            } catch (Exception error) {
                String name = error.getClass().getSimpleName();
                answer = "error " + name + " " + String.valueOf(error.getMessage()).replace("\n", " ");
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0); // whatever still runs
    }
}
