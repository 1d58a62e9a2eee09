// Kafka's Java clients without transactions, led step by step through standard input; what it understands
// stands in tests/support/java_steps.py.
//
//     java Steps

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Steps {
    static final long DEADLINE_MS = 120_000;
    static final String REQUEST_TIMEOUT_MS = "30000";
    static final int IN_FLIGHT = 100;

    static Writer writer;

    static Properties settings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("reconnect.backoff.ms", "5");
        settings.put("reconnect.backoff.max.ms", "50");
        return settings;
    }

    static KafkaProducer<String, String> producer(String bootstrap, String requestTimeoutMs) {
        Properties settings = settings(bootstrap);
        settings.put("request.timeout.ms", requestTimeoutMs);
        settings.put("linger.ms", "1");
        settings.put("batch.size", "400");
        settings.put("retry.backoff.ms", "5");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    static String create(String bootstrap, String topic, String timeoutMs) throws Exception {
        Properties settings = settings(bootstrap);
        settings.put("default.api.timeout.ms", timeoutMs);
        settings.put("request.timeout.ms", timeoutMs);
        try (Admin admin = Admin.create(settings)) {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        }
        return "";
    }

    static String produce(String bootstrap, String topic, List<String> values) throws Exception {
        List<String> offsets = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(bootstrap, REQUEST_TIMEOUT_MS)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String value : values) sent.add(producer.send(new ProducerRecord<>(topic, 0, null, value)));
            for (Future<RecordMetadata> each : sent) offsets.add(String.valueOf(each.get().offset()));
        }
        return String.join(" ", offsets);
    }

    static String consume(String bootstrap, String topic, String group, int count) throws Exception {
        Properties settings = settings(bootstrap);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("fetch.max.wait.ms", "50");
        List<String> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + DEADLINE_MS;
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (found.size() < count) {
                if (System.currentTimeMillis() > deadline) throw new TimeoutException(found.size() + " records");
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    found.add(record.value());
                }
            }
            consumer.commitSync();
        }
        return String.join(" ", found);
    }

    // Writes numbers from 0 on in a thread, until told to stop.
    static class Writer {
        final KafkaProducer<String, String> producer;
        final Thread thread = new Thread(this::write);
        final Semaphore inFlight = new Semaphore(IN_FLIGHT);
        final String topic;
        volatile boolean isStopping;
        int acknowledged; // of the producer's own thread; the others read `told`
        volatile int told;
        volatile Exception failure;

        Writer(String bootstrap, String topic, String requestTimeoutMs) {
            producer = producer(bootstrap, requestTimeoutMs);
            this.topic = topic;
            thread.setDaemon(true);
            thread.start();
        }

        void write() {
            try {
                for (int number = 0; !isStopping; number++) {
                    inFlight.acquire();
                    producer.send(new ProducerRecord<>(topic, 0, null, String.valueOf(number)), this::sent);
                }
            } catch (Exception error) {
                failure = error;
            }
        }

        void sent(RecordMetadata metadata, Exception error) {
            if (error == null) {
                told = ++acknowledged;
            } else {
                failure = error;
            }
            inFlight.release();
        }

        String written() throws Exception {
            if (failure != null) throw failure;
            return String.valueOf(told);
        }

        String finish() throws Exception {
            isStopping = true;
            thread.join(DEADLINE_MS);
            producer.close(Duration.ofMillis(DEADLINE_MS));
            return written();
        }
    }

    static String run(String[] words) throws Exception {
        return switch (words[0]) {
            case "create" -> create(words[1], words[2], words[3]);
            case "produce" -> produce(words[1], words[2], Arrays.asList(words).subList(3, words.length));
            case "consume" -> consume(words[1], words[2], words[3], Integer.parseInt(words[4]));
            case "write" -> {
                writer = new Writer(words[1], words[2], words[3]);
                yield "";
            }
            case "written" -> writer.written();
            case "finish" -> writer.finish();
            default -> throw new IllegalArgumentException(words[0]);
        };
    }

    static String answer(String line) {
        try {
            return ("ok " + run(line.split(" "))).strip();
        } catch (Exception thrown) {
            Throwable error = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
            String message = String.valueOf(error.getMessage()).replace("\n", " ");
            return "error " + error.getClass().getSimpleName() + " " + message;
        }
    }

    public static void main(String[] none) throws Exception {
        BufferedReader asked = new BufferedReader(new InputStreamReader(System.in));
        for (String line = asked.readLine(); line != null; line = asked.readLine()) {
            System.out.println(answer(line));
            System.out.flush();
        }
        System.exit(0); // whatever still runs
    }
}
