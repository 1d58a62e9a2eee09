import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Makes a running Apache Kafka write one of everything that its log knows, and says what it serves afterwards.
 *
 *   first BOOTSTRAP BASE_TIME_MS     topics, codecs, segments, transactions ...
 *   second BOOTSTRAP BASE_TIME_MS    after a restart, so in a later leader epoch: compaction, deletion, groups ...
 *   third BOOTSTRAP BASE_TIME_MS     after another one: more of the same, in new segments too
 *   describe BOOTSTRAP FILE          every record and look-up as Kafka answers them, as JSON
 *
 * Contents depend on BASE_TIME_MS alone; only what the broker stamps (append time, markers) does not. Every
 * batch is what was sent between two flushes, so that batch boundaries are the same in every run. The second
 * leaves a transaction open, by ending the process without closing its producer.
 */
public final class Workload {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final Map<String, Map<String, String>> TOPICS = new TreeMap<>(Map.of(
        "codecs", Map.of("index.interval.bytes", "512"),
        "recompressed", Map.of("compression.type", "zstd"),
        "appended", Map.of("message.timestamp.type", "LogAppendTime", "index.interval.bytes", "256"),
        "segments", Map.of("internal.segment.bytes", "12000", "index.interval.bytes", "900"),
        "indexfull", Map.of("segment.index.bytes", "36", "index.interval.bytes", "100"),
        "aged", Map.of("segment.ms", "600000", "index.interval.bytes", "0"),
        "transactions", Map.of("internal.segment.bytes", "1600", "index.interval.bytes", "200"),
        "compacted", Map.of(
            "cleanup.policy", "compact", "internal.segment.bytes", "3000", "index.interval.bytes", "300",
            "min.cleanable.dirty.ratio", "0.01", "min.compaction.lag.ms", "86400000"),
        "deleted", Map.of("internal.segment.bytes", "4000", "index.interval.bytes", "500"),
        "epochs", Map.of("index.interval.bytes", "300", "segment.index.bytes", "10485760")));

    final String bootstrap;
    final long baseTime;
    final Admin admin;

    Workload(String bootstrap, long baseTime) {
        this.bootstrap = bootstrap;
        this.baseTime = baseTime;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] args) throws Exception {
        Workload workload = new Workload(args[1], args[0].equals("describe") ? 0 : Long.parseLong(args[2]));
        switch (args[0]) {
            case "first" -> workload.first();
            case "second" -> workload.second();
            case "third" -> workload.third();
            case "describe" -> workload.describe(new File(args[2]));
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    void first() throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        TOPICS.forEach((name, configs) -> topics.add(new NewTopic(name, 1, (short) 1).configs(configs)));
        admin.createTopics(topics).all().get();
        codecs();
        try (Sender sender = new Sender("enable.idempotence", "false", "compression.type", "gzip")) {
            for (int batch = 0; batch < 3; batch++) sender.batch("recompressed", batch * 10, 10);
        }
        for (String codec : List.of("none", "lz4")) {
            try (Sender sender = new Sender("compression.type", codec)) {
                for (int batch = 0; batch < 4; batch++) sender.batch("appended", batch * 5, 5);
            }
        }
        segments();
        try (Sender sender = new Sender("enable.idempotence", "false")) {
            for (int batch = 0; batch < 40; batch++) sender.batch("indexfull", batch, 1 + batch % 2);
        }
        try (Sender sender = new Sender()) {
            for (int batch = 0; batch < 12; batch++) sender.batch("aged", batch * 2, 2, batch * 130_000L);
        }
        try (Sender sender = new Sender()) {
            for (int batch = 0; batch < 20; batch++) sender.batch("deleted", batch * 3, 3);
            for (int batch = 0; batch < 6; batch++) sender.batch("epochs", batch * 4, 4);
        }
        transactions();
    }

    void second() throws Exception {
        try (Sender sender = new Sender("compression.type", "snappy")) {
            for (int batch = 6; batch < 12; batch++) sender.batch("epochs", batch * 4, 4);
        }
        admin.deleteRecords(Map.of(new TopicPartition("deleted", 0), RecordsToDelete.beforeOffset(31))).all().get();
        compacted();
        offsets();
        leftOpen();
    }

    void third() throws Exception {
        try (Sender sender = new Sender()) {
            for (int batch = 12; batch < 15; batch++) sender.batch("epochs", batch * 4, 4);
            for (int batch = 0; batch < 16; batch++) sender.batch("segments", 1000 + batch * 5, 5);
            for (int batch = 0; batch < 3; batch++) sender.batch("aged", 1000 + batch * 2, 2);
        }
        Sender a = new Sender("transactional.id", "a"), b = new Sender("transactional.id", "b");
        for (Sender each : List.of(a, b)) each.producer.initTransactions();
        interleaved(1000, a, b);
        for (Sender each : List.of(a, b)) each.close();
    }

    void interleaved(int index, Sender a, Sender b) throws Exception {
        a.producer.beginTransaction();
        a.batch("transactions", index, 3);
        b.producer.beginTransaction();
        b.batch("transactions", index + 10, 2);
        end(a, false);
        a.producer.beginTransaction();
        a.batch("transactions", index + 20, 3);
        end(b, true);
        end(a, false);
    }

    /** Five producers take turns, each with its own codec: every one leaves its sequence in the producer state. */
    void codecs() throws Exception {
        List<Sender> senders = new ArrayList<>();
        for (String codec : CODECS) senders.add(new Sender("compression.type", codec));
        for (int round = 0; round < 4; round++)
            for (int codec = 0; codec < CODECS.size(); codec++)
                senders.get(codec).batch("codecs", (round * CODECS.size() + codec) * 7, 7);
        for (Sender sender : senders) sender.close();
    }

    /** Batches of many sizes, whose timestamps sometimes fall back behind earlier ones. */
    void segments() throws Exception {
        Random random = new Random(3);
        try (Sender sender = new Sender()) {
            for (int batch = 0, index = 100; batch < 60; batch++) {
                int count = 1 + random.nextInt(8);
                sender.batch("segments", index, count, (index - (batch % 7 == 3 ? 40 : 0)) * 1000L);
                index += count;
            }
        }
    }

    /** Interleaved transactions; each ends only after the marker of the one before it is in the log. */
    void transactions() throws Exception {
        Sender a = new Sender("transactional.id", "a"), b = new Sender("transactional.id", "b");
        Sender c = new Sender("transactional.id", "c"), plain = new Sender();
        for (Sender each : List.of(a, b, c)) each.producer.initTransactions();
        for (int round = 0; round < 5; round++) {
            int at = round * 100;
            a.producer.beginTransaction();
            a.batch("transactions", at, 3);
            b.producer.beginTransaction();
            b.batch("transactions", at + 10, 2);
            plain.batch("transactions", at + 20, 1);
            a.batch("transactions", at + 30, 2);
            end(b, round % 2 == 1);
            c.producer.beginTransaction();
            c.batch("transactions", at + 40, 4);
            end(a, round != 2);
            plain.batch("transactions", at + 50, 2);
            end(c, round % 2 == 0);
        }
        for (Sender each : List.of(a, b, c, plain)) each.close();
    }

    void end(Sender sender, boolean commit) throws Exception {
        end(sender, "transactions", commit);
    }

    void end(Sender sender, String topic, boolean commit) throws Exception {
        long before = offset(topic, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED);
        if (commit) sender.producer.commitTransaction();
        else sender.producer.abortTransaction();
        await(() -> offset(topic, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED) == before + 1);
    }

    /** Many values a key, some tombstones, some transactions; the cleaner may run only once all is written. */
    void compacted() throws Exception {
        try (Sender sender = new Sender("compression.type", "lz4"); Sender other = new Sender();
            Sender transactional = new Sender("transactional.id", "compacted")) {
            transactional.producer.initTransactions();
            for (int batch = 0; batch < 30; batch++) {
                Sender one = batch % 3 == 2 ? other : sender;
                for (int record = 0; record < 5; record++) {
                    int key = (batch * 5 + record * 3) % 17;
                    boolean gone = (batch + record) % 11 == 0;
                    one.keyed("key-" + key, batch, gone ? null : "value " + batch + " of key " + key + " ".repeat(200));
                }
                one.keyed("once-" + batch, batch, batch % 2 == 0 ? null : "the only value");
                one.flush();
                if (batch % 8 == 5) {
                    transactional.producer.beginTransaction();
                    transactional.keyed("key-" + batch % 17, batch, "in a transaction");
                    transactional.flush();
                    end(transactional, "compacted", batch % 16 == 5);
                }
            }
        }
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "compacted");
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry("min.compaction.lag.ms", "0"), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(topic, List.of(change))).all().get();
    }

    /** Offsets committed alone, by members of both kinds of groups, and within a transaction. */
    void offsets() throws Exception {
        TopicPartition segments = new TopicPartition("segments", 0);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", "alone")) {
            consumer.commitSync(Map.of(segments, new OffsetAndMetadata(7, "some metadata")));
            consumer.commitSync(Map.of(segments, new OffsetAndMetadata(11), new TopicPartition("codecs", 0), new OffsetAndMetadata(70)));
        }
        for (String protocol : List.of("classic", "consumer")) {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", "members-" + protocol, "group.protocol", protocol)) {
                consumer.subscribe(List.of("codecs"));
                await(() -> !consumer.poll(Duration.ofMillis(50)).isEmpty());
                consumer.commitSync();
            }
        }
        try (Sender sender = new Sender("transactional.id", "offsets");
            KafkaConsumer<byte[], byte[]> consumer = consumer("group.id", "transactional")) {
            sender.producer.initTransactions();
            for (boolean commit : List.of(true, false)) {
                sender.producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = Map.of(segments, new OffsetAndMetadata(commit ? 21 : 33));
                sender.producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (commit) sender.producer.commitTransaction();
                else sender.producer.abortTransaction();
            }
        }
        await(() -> admin.listConsumerGroupOffsets("transactional").partitionsToOffsetAndMetadata().get().get(segments).offset() == 21);
    }

    void leftOpen() throws Exception {
        Sender open = new Sender("transactional.id", "open", "transaction.timeout.ms", "900000");
        open.producer.initTransactions();
        open.producer.beginTransaction();
        open.batch("transactions", 900, 3);
        try (Sender plain = new Sender()) {
            plain.batch("transactions", 910, 2);
        }
    }

    // ---- what Kafka serves

    void describe(File file) throws Exception {
        Map<String, List<ConsumerRecord<byte[], byte[]>>> all = read(IsolationLevel.READ_UNCOMMITTED);
        Map<String, List<ConsumerRecord<byte[], byte[]>>> committed = read(IsolationLevel.READ_COMMITTED);
        Map<String, Object> topics = new TreeMap<>();
        for (String topic : TOPICS.keySet()) topics.put(topic, describe(topic, all.get(topic), committed.get(topic)));
        new ObjectMapper().writeValue(file, Map.of("topics", topics, "offsets", committedOffsets()));
    }

    Map<String, Object> describe(
            String topic, List<ConsumerRecord<byte[], byte[]>> all, List<ConsumerRecord<byte[], byte[]>> committed) throws Exception {
        TreeSet<Long> timestamps = new TreeSet<>(Set.of(0L));
        for (ConsumerRecord<byte[], byte[]> record : all)
            timestamps.addAll(List.of(record.timestamp() - 1, record.timestamp(), record.timestamp() + 1));
        Map<String, Object> described = new LinkedHashMap<>();
        described.put("config", TOPICS.get(topic));
        described.put("start", offset(topic, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED));
        described.put("end", offset(topic, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED));
        described.put("stable", offset(topic, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED));
        described.put("records", all.stream().map(this::describe).toList());
        described.put("committed", committed.stream().map(ConsumerRecord::offset).toList());
        described.put("lookups", lookUps(topic, timestamps));
        return described;
    }

    Map<String, Object> describe(ConsumerRecord<byte[], byte[]> record) {
        Map<String, Object> described = new LinkedHashMap<>();
        described.put("offset", record.offset());
        described.put("timestamp", record.timestamp());
        described.put("timestamp_type", record.timestampType().name);
        described.put("epoch", record.leaderEpoch().orElse(-1));
        described.put("key", hex(record.key()));
        described.put("value", hex(record.value()));
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<String> pair = new ArrayList<>(List.of(header.key()));
            pair.add(hex(header.value()));
            headers.add(pair);
        }
        described.put("headers", headers);
        return described;
    }

    /** [timestamp asked for, offset, timestamp, leader epoch], and the special "max". */
    List<List<Object>> lookUps(String topic, Collection<Long> timestamps) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        Map<Object, Future<ListOffsetsResultInfo>> asked = new LinkedHashMap<>();
        for (long timestamp : timestamps)
            asked.put(timestamp, admin.listOffsets(Map.of(partition, OffsetSpec.forTimestamp(timestamp))).partitionResult(partition));
        asked.put("max", admin.listOffsets(Map.of(partition, OffsetSpec.maxTimestamp())).partitionResult(partition));
        List<List<Object>> answers = new ArrayList<>();
        for (Map.Entry<Object, Future<ListOffsetsResultInfo>> each : asked.entrySet()) {
            ListOffsetsResultInfo answer = each.getValue().get();
            answers.add(List.of(each.getKey(), answer.offset(), answer.timestamp(), answer.leaderEpoch().orElse(-1)));
        }
        return answers;
    }

    Map<String, List<ConsumerRecord<byte[], byte[]>>> read(IsolationLevel isolation) throws Exception {
        Map<String, List<ConsumerRecord<byte[], byte[]>>> records = new TreeMap<>();
        List<TopicPartition> partitions = TOPICS.keySet().stream().map(topic -> new TopicPartition(topic, 0)).toList();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("isolation.level", isolation.toString())) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            for (TopicPartition partition : partitions) {
                records.putIfAbsent(partition.topic(), new ArrayList<>());
                long end = offset(partition.topic(), OffsetSpec.latest(), isolation);
                while (consumer.position(partition) < end)
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(20)))
                        records.computeIfAbsent(record.topic(), topic -> new ArrayList<>()).add(record);
            }
        }
        return records;
    }

    Map<String, Map<String, Long>> committedOffsets() throws Exception {
        Map<String, Map<String, Long>> groups = new TreeMap<>();
        for (String group : List.of("alone", "members-classic", "members-consumer", "transactional")) {
            Map<String, Long> offsets = new TreeMap<>();
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                .forEach((partition, offset) -> offsets.put(partition.topic(), offset.offset()));
            groups.put(group, offsets);
        }
        return groups;
    }

    // ---- tools

    /** A producer whose batches are what is sent between two flushes. */
    final class Sender implements AutoCloseable {
        final KafkaProducer<byte[], byte[]> producer;
        private final List<Future<RecordMetadata>> sent = new ArrayList<>();

        Sender(String... settings) {
            Properties properties = new Properties();
            properties.putAll(Map.of("bootstrap.servers", bootstrap, "linger.ms", "60000", "batch.size", "1048576", "acks", "all"));
            for (int i = 0; i < settings.length; i += 2) properties.put(settings[i], settings[i + 1]);
            producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        }

        /** One batch of `count` records numbered from `index`, as many seconds after the base time. */
        void batch(String topic, int index, int count) throws Exception {
            batch(topic, index, count, index * 1000L);
        }

        /** The same, but from another time; the second record of a batch is always its latest. */
        void batch(String topic, int index, int count, long afterMs) throws Exception {
            for (int i = 0; i < count; i++) {
                long timestamp = baseTime + afterMs + (i == 1 ? count : i) * 1000L;
                send(new ProducerRecord<>(topic, 0, timestamp, key(index + i), value(topic, index + i), headers(index + i)));
            }
            flush();
        }

        void keyed(String key, int index, String value) {
            byte[] bytes = value == null ? null : text(value);
            send(new ProducerRecord<>("compacted", 0, baseTime + index * 1000L, text(key), bytes));
        }

        void send(ProducerRecord<byte[], byte[]> record) {
            sent.add(producer.send(record));
        }

        void flush() throws Exception {
            producer.flush();
            for (Future<RecordMetadata> each : sent) each.get();
            sent.clear();
        }

        @Override
        public void close() {
            producer.close();
        }
    }

    static byte[] key(int i) {
        return i % 5 == 4 ? null : text("key-" + i % 13);
    }

    static byte[] value(String topic, int i) {
        if (i % 9 == 8) return null;
        return text("%s %d %s".formatted(topic, i, "in the Castle ".repeat(i * 7 % 23)));
    }

    static List<Header> headers(int i) {
        List<Header> headers = new ArrayList<>();
        if (i % 3 > 0) headers.add(new RecordHeader("trace", new byte[] {(byte) i, 0, -1}));
        if (i % 3 > 1) headers.add(new RecordHeader("K.\u00e9\u00df\u2192", null));
        if (i % 11 == 10) headers.add(new RecordHeader("", new byte[0]));
        return headers;
    }

    static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }

    KafkaConsumer<byte[], byte[]> consumer(String... settings) {
        Properties properties = new Properties();
        properties.putAll(Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", "false", "auto.offset.reset", "earliest", "fetch.max.wait.ms", "20"));
        for (int i = 0; i < settings.length; i += 2) properties.put(settings[i], settings[i + 1]);
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    long offset(String topic, OffsetSpec spec, IsolationLevel isolation) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        ListOffsetsOptions options = new ListOffsetsOptions(isolation);
        return admin.listOffsets(Map.of(partition, spec), options).partitionResult(partition).get().offset();
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void await(Condition condition) throws Exception {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (!condition.holds()) {
            if (System.nanoTime() > deadline) throw new IllegalStateException("waited 30 s in vain");
            Thread.sleep(5);
        }
    }
}
