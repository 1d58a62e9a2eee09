/*
 * What an application does with Kafka's Java client, short of groups and transactions: topics are made,
 * described and deleted, records of every codec written and read by assignment, places looked up by time.
 * Whatever is not as it should be ends it with an exception. Works with clients from 3.9 on.
 *
 * usage: ClientTour bootstrap prefix
 */

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.*;

public class ClientTour {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final long START_MS = 1_750_000_000_000L;

    final String bootstrap;
    final String prefix;

    ClientTour(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
    }

    public static void main(String[] arguments) throws Exception {
        ClientTour tour = new ClientTour(arguments[0], arguments[1]);
        tour.admin();
        for (String codec : CODECS) tour.roundTrip(codec);
        tour.places();
        tour.acks();
        tour.large();
        tour.many();
        tour.longPoll();
    }

    static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static void same(Object expected, Object found, String what) {
        check(Objects.equals(expected, found), what + ": " + found + " instead of " + expected);
    }

    static void done(String part) {
        System.out.println("done " + part);
    }

    Map<String, Object> common() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> settings = common();
        settings.putAll(more);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
        Map<String, Object> settings = common();
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "none");
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    void create(String topic, int partitions, Map<String, String> configs) throws Exception {
        try (Admin admin = Admin.create(common())) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(configs))).all().get();
            // Apache Kafka answers before the partitions can be used, and a producer that comes first may hang
            for (int i = 0; i < partitions; i++) {
                admin.listOffsets(Map.of(new TopicPartition(topic, i), OffsetSpec.latest())).all().get();
            }
        }
    }

    List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (found.size() < count) {
            check(System.nanoTime() < deadline, "only " + found.size() + " of " + count + " records came");
            consumer.poll(Duration.ofMillis(500)).forEach(found::add);
        }
        return found;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    void admin() throws Exception {
        String topic = prefix + "-admin";
        try (Admin admin = Admin.create(common())) {
            CreateTopicsResult made = admin.createTopics(
                List.of(new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "123456"))));
            made.all().get();
            same(3, made.numPartitions(topic).get(), "partitions told at creation");
            same(1, made.replicationFactor(topic).get(), "replicas told at creation");
            same("123456", made.config(topic).get().get("retention.ms").value(), "settings told at creation");
            TopicDescription described = describe(admin, topic);
            check(admin.listTopics().names().get().contains(topic), "the topic is listed");
            same(3, described.partitions().size(), "partitions");
            same(made.topicId(topic).get(), described.topicId(), "id of the topic");
            check(described.partitions().stream().allMatch(p -> p.leader() != null && p.isr().size() == 1), "leaders");
            same(described.topicId(), admin.describeTopics(TopicCollection.ofTopicIds(List.of(described.topicId())))
                .allTopicIds().get().get(described.topicId()).topicId(), "described by its id");

            ConfigResource ofTopic = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            Config config = admin.describeConfigs(List.of(ofTopic)).all().get().get(ofTopic);
            same("123456", config.get("retention.ms").value(), "retention.ms");
            same(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, config.get("retention.ms").source(), "its source");
            same(true, config.get("cleanup.policy").isDefault(), "cleanup.policy is a default");

            DescribeClusterResult cluster = admin.describeCluster();
            same(1, cluster.nodes().get().size(), "nodes");
            String node = cluster.nodes().get().iterator().next().idString();
            check(cluster.clusterId().get().length() == 22, "id of the cluster");
            ConfigResource ofBroker = new ConfigResource(ConfigResource.Type.BROKER, node);
            check(admin.describeConfigs(List.of(ofBroker)).all().get().get(ofBroker).get("num.io.threads") != null,
                "settings of the broker");

            fails(TopicExistsException.class, admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all());
            fails(InvalidTopicException.class, admin.createTopics(List.of(new NewTopic("a b", 1, (short) 1))).all());
            fails(InvalidReplicationFactorException.class,
                admin.createTopics(List.of(new NewTopic(topic + "-2", 1, (short) 2))).all());
            admin.createTopics(List.of(new NewTopic(topic + "-3", 1, (short) 1)),
                new CreateTopicsOptions().validateOnly(true)).all().get();
            check(!admin.listTopics().names().get().contains(topic + "-3"), "validated only");

            admin.deleteTopics(List.of(topic)).all().get();
            fails(UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of(topic)).all());
            check(!admin.listTopics().names().get().contains(topic), "the topic is gone");
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            TopicDescription again = describe(admin, topic);
            same(1, again.partitions().size(), "partitions of the new one");
            check(!again.topicId().equals(described.topicId()), "it is another topic");
        }
        done("admin");
    }

    /** Apache Kafka may be asked for a topic before it knows of it itself. */
    static TopicDescription describe(Admin admin, String topic) throws Exception {
        for (int tries = 0; ; tries++) {
            try {
                return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            } catch (ExecutionException error) {
                if (tries == 50 || !(error.getCause() instanceof UnknownTopicOrPartitionException)) throw error;
                Thread.sleep(100);
            }
        }
    }

    static void fails(Class<? extends Exception> expected, KafkaFuture<?> future) throws Exception {
        try {
            future.get();
        } catch (ExecutionException error) {
            same(expected, error.getCause().getClass(), "kind of error");
            return;
        }
        throw new AssertionError("succeeded, instead of " + expected);
    }

    void roundTrip(String codec) throws Exception {
        String topic = prefix + "-" + codec;
        create(topic, 2, Map.of());
        List<ProducerRecord<byte[], byte[]>> sent = new ArrayList<>();
        for (int i = 0; i < 500; i++) {
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(topic, i % 2, START_MS + i,
                i % 5 == 0 ? null : bytes("key " + i), i % 7 == 0 ? null : bytes("value " + i + "x".repeat(i)));
            if (i % 3 == 0) record.headers().add(new RecordHeader("number", bytes("" + i))).add("none", null);
            sent.add(record);
        }
        // idempotent, as it is unless told otherwise
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", codec, "linger.ms", 5))) {
            List<Future<RecordMetadata>> futures = sent.stream().map(producer::send).collect(Collectors.toList());
            for (int i = 0; i < futures.size(); i++) {
                same((long) (i / 2), futures.get(i).get().offset(), "offset of record " + i);
                same(START_MS + i, futures.get(i).get().timestamp(), "timestamp of record " + i);
            }
        }
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            try (KafkaConsumer<byte[], byte[]> consumer =
                     consumer(Map.of("isolation.level", isolation, "max.poll.records", 37))) {
                List<TopicPartition> both = List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
                consumer.assign(both);
                consumer.seekToBeginning(both);
                for (ConsumerRecord<byte[], byte[]> found : read(consumer, sent.size())) {
                    ProducerRecord<byte[], byte[]> record = sent.get((int) found.offset() * 2 + found.partition());
                    check(Arrays.equals(record.key(), found.key()), "key");
                    check(Arrays.equals(record.value(), found.value()), "value");
                    same(record.timestamp(), found.timestamp(), "timestamp");
                    same(record.headers(), found.headers(), "headers");
                    same(Optional.of(0), found.leaderEpoch(), "leader epoch");
                }
                same(250L, consumer.position(both.get(0)), "position at the end");
            }
        }
        done(codec);
    }

    void places() throws Exception {
        String topic = prefix + "-none";
        TopicPartition first = new TopicPartition(topic, 0), second = new TopicPartition(topic, 1);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            same(2, consumer.partitionsFor(topic).size(), "partitions");
            same(Map.of(first, 0L, second, 0L), consumer.beginningOffsets(List.of(first, second)), "beginnings");
            same(Map.of(first, 250L, second, 250L), consumer.endOffsets(List.of(first, second)), "ends");
            Map<TopicPartition, OffsetAndTimestamp> found =
                consumer.offsetsForTimes(Map.of(first, START_MS + 101, second, START_MS + 101));
            same(51L, found.get(first).offset(), "offset of a time");
            same(START_MS + 102, found.get(first).timestamp(), "its timestamp");
            same(50L, found.get(second).offset(), "offset of a time");
            same(null, consumer.offsetsForTimes(Map.of(first, START_MS + 10_000)).get(first), "a time to come");
            consumer.assign(List.of(first));
            consumer.seek(first, 200);
            same(200L, read(consumer, 1).get(0).offset(), "where it was set");
            consumer.seek(first, 251);
            try {
                consumer.poll(Duration.ofSeconds(10));
                throw new AssertionError("read beyond the end");
            } catch (org.apache.kafka.clients.consumer.OffsetOutOfRangeException error) {
                same(Set.of(first), error.partitions(), "what is out of range");
            }
        }
        try (Admin admin = Admin.create(common())) {
            for (Map.Entry<OffsetSpec, Long> asked : Map.of(OffsetSpec.earliest(), 0L, OffsetSpec.latest(), 250L,
                OffsetSpec.maxTimestamp(), 249L, OffsetSpec.forTimestamp(START_MS + 10), 5L).entrySet()) {
                same(asked.getValue(), admin.listOffsets(Map.of(first, asked.getKey())).partitionResult(first).get()
                    .offset(), asked.getKey().getClass().getSimpleName());
            }
        }
        done("places");
    }

    void acks() throws Exception {
        String topic = prefix + "-acks";
        create(topic, 1, Map.of());
        for (String acks : List.of("0", "1", "all")) {
            try (KafkaProducer<byte[], byte[]> producer =
                     producer(Map.of("acks", acks, "enable.idempotence", false))) {
                for (int i = 0; i < 100; i++) producer.send(new ProducerRecord<>(topic, bytes(acks + i)));
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            same(300, read(consumer, 300).size(), "records");
        }
        done("acks");
    }

    void large() throws Exception {
        String topic = prefix + "-large";
        create(topic, 1, Map.of("max.message.bytes", "6000000"));
        byte[] value = new byte[5_000_000];
        new Random(1).nextBytes(value);
        try (KafkaProducer<byte[], byte[]> producer =
                 producer(Map.of("max.request.size", 20_000_000, "buffer.memory", 64_000_000))) {
            for (int i = 0; i < 5; i++) producer.send(new ProducerRecord<>(topic, value)).get();
            try {
                producer.send(new ProducerRecord<>(topic, new byte[7_000_000])).get();
                throw new AssertionError("a record that is too large was taken");
            } catch (ExecutionException error) {
                same(RecordTooLargeException.class, error.getCause().getClass(), "kind of error");
            }
            same(5L, producer.send(new ProducerRecord<>(topic, bytes("small"))).get().offset(), "it goes on");
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("max.partition.fetch.bytes", 1000))) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            List<ConsumerRecord<byte[], byte[]>> found = read(consumer, 6);
            for (int i = 0; i < 5; i++) check(Arrays.equals(value, found.get(i).value()), "large record " + i);
        }
        done("large");
    }

    void many() throws Exception {
        String topic = prefix + "-many";
        int partitions = 20, count = 100_000;
        create(topic, partitions, Map.of());
        ConcurrentLinkedQueue<Exception> errors = new ConcurrentLinkedQueue<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("compression.type", "lz4", "linger.ms", 5))) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, i % partitions, null, bytes("" + i / partitions)),
                    (metadata, error) -> {
                        if (error != null) errors.add(error);
                    });
            }
        }
        check(errors.isEmpty(), "errors: " + errors.peek());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of())) {
            List<TopicPartition> all = IntStream.range(0, partitions).mapToObj(i -> new TopicPartition(topic, i))
                .collect(Collectors.toList());
            consumer.assign(all);
            consumer.seekToBeginning(all);
            // incremental fetch sessions: partitions come and go while it reads
            int found = 0;
            while (found < count) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(10))) {
                    same("" + record.offset(), new String(record.value(), StandardCharsets.UTF_8), "value");
                    found++;
                }
                consumer.resume(all);
                consumer.pause(List.of(all.get(new Random(found).nextInt(partitions))));
                if (found > count / 2) consumer.resume(all);
            }
            same(count, found, "records");
        }
        done("many");
    }

    void longPoll() throws Exception {
        String topic = prefix + "-poll";
        create(topic, 1, Map.of());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("fetch.max.wait.ms", 20_000));
             KafkaProducer<byte[], byte[]> producer = producer(Map.of())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            check(consumer.poll(Duration.ofMillis(300)).isEmpty(), "nothing is there yet");
            long began = System.nanoTime();
            producer.send(new ProducerRecord<>(topic, bytes("now"))).get();
            same("now", new String(read(consumer, 1).get(0).value(), StandardCharsets.UTF_8), "value");
            check(System.nanoTime() - began < 10_000_000_000L, "the poll was not woken");
            consumer.close(Duration.ZERO);  // or it would wait for the next poll to end
        }
        done("long poll");
    }
}
