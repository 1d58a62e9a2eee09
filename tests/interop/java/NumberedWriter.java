// A process that writes numbered records with Kafka's Java producer, acks=all and idempotent; what it sends and says
// stands in tests/interop/numbered_writer.py.
//
//     java NumberedWriter HOST:PORT,... TOPIC NAME PARTITIONS TICK-MS

import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

public class NumberedWriter {
    static final long PATIENCE_MS = 300_000;
    static final int IN_FLIGHT = 5_000;

    static final PrintStream out =
        new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false);
    static final AtomicInteger inFlight = new AtomicInteger();

    static String value(String name, int partition, int number) {
        StringBuilder text = new StringBuilder(name + "/" + partition + "/" + number + "/");
        int size = 20 + (int) (number * 37L % 500);
        while (text.length() < size) text.append('.');
        return text.toString();
    }

    static void say(String line) {
        synchronized (out) {
            out.print(line + "\n");
        }
    }

    static void answered(int partition, int number, long sentNs, RecordMetadata metadata, Exception error) {
        inFlight.decrementAndGet();
        if (error != null) {
            say("error " + partition + " " + number + " " + error.toString().replace("\n", " "));
        } else {
            say(partition + " " + number + " " + metadata.offset() + " " + sentNs + " " + System.nanoTime());
        }
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1], name = arguments[2];
        int partitions = Integer.parseInt(arguments[3]);
        long tickMs = Long.parseLong(arguments[4]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("delivery.timeout.ms", String.valueOf(PATIENCE_MS));
        settings.put("max.block.ms", String.valueOf(PATIENCE_MS));
        CountDownLatch stopping = new CountDownLatch(1);
        Thread listener = new Thread(() -> {
            try {
                System.in.read();
            } catch (java.io.IOException ended) {
                // as a line
            }
            stopping.countDown();
        });
        listener.setDaemon(true);
        listener.start();
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        for (int number = 0; !stopping.await(tickMs, TimeUnit.MILLISECONDS); ) {
            if (inFlight.get() < IN_FLIGHT) {
                for (int each = 0; each < partitions; each++) {
                    int partition = each, sent = number;
                    long sentNs = System.nanoTime();
                    inFlight.incrementAndGet();
                    producer.send(
                        new ProducerRecord<>(topic, partition, null, value(name, partition, sent)),
                        (metadata, error) -> answered(partition, sent, sentNs, metadata, error));
                }
                number++;
            }
            synchronized (out) {
                out.flush();
            }
        }
        producer.close(Duration.ofMillis(PATIENCE_MS));
        if (inFlight.get() > 0) say("error -1 -1 " + inFlight.get() + " records were never answered");
        say("end");
        out.flush();
    }
}
