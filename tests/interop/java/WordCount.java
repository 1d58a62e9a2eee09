// An application of Kafka Streams, exactly once: counts the words of its input.
//
//     java WordCount.java HOST:PORT APPLICATION INPUT OUTPUT STATE-DIRECTORY INSTANCE TIMEOUT-MS SESSION-MS
//
// Values are read from the input and made keys, which sends them through a repartition topic; the counts live in a
// store with a changelog, and each increment is written to the output, since nothing is held back by a cache. It says
// "running" when it has its tasks and has restored them, and runs until it is killed; an error of its own ends it.

import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

public class WordCount {
    static StreamsBuilder counting(String input, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
            .selectKey((key, word) -> word)
            .groupByKey(Grouped.with("words", Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(String::valueOf)
            .to(output, Produced.with(Serdes.String(), Serdes.String()));
        return builder;
    }

    static Properties settings(
        String bootstrap, String application, String directory, String instance, String timeoutMs, String sessionMs
    ) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "50");
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, "1");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), sessionMs);
        settings.put(StreamsConfig.consumerPrefix("heartbeat.interval.ms"), "300");
        settings.put(StreamsConfig.consumerPrefix("group.instance.id"), instance);
        settings.put(StreamsConfig.consumerPrefix("max.poll.records"), "50");
        settings.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), timeoutMs);
        return settings;
    }

    public static void main(String[] given) throws InterruptedException {
        CountDownLatch ended = new CountDownLatch(1);
        StreamsBuilder builder = counting(given[2], given[3]);
        Properties settings = settings(given[0], given[1], given[4], given[5], given[6], given[7]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            System.out.println(now.name().toLowerCase());
            System.out.flush();
            if (now == KafkaStreams.State.ERROR || now == KafkaStreams.State.NOT_RUNNING) {
                ended.countDown();
            }
        });
        streams.start();
        ended.await();
        System.exit(1);
    }
}
