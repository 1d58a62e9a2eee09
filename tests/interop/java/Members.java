// Members of groups with Kafka's own consumer, each in a thread, told what to do by lines of JSON, and telling; what
// it understands and what it says stands in tests/interop/python_members.py.
//
//     java Members

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class Members {
    static final String PACKAGE = "org.apache.kafka.clients.consumer.";
    static final Map<String, String> ASSIGNORS = Map.of(
        "range", PACKAGE + "RangeAssignor",
        "roundrobin", PACKAGE + "RoundRobinAssignor",
        "sticky", PACKAGE + "StickyAssignor",
        "cooperative-sticky", PACKAGE + "CooperativeStickyAssignor");
    static final long COMMIT_EVERY_NS = 200_000_000L;

    public static void main(String[] arguments) throws Exception {
        Map<String, Member> members = new HashMap<>();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String name = text(line, "member");
            switch (text(line, "do")) {
                case "join" -> {
                    Member member = new Member(name, line);
                    members.put(name, member);
                    Thread thread = new Thread(member, name);
                    thread.setDaemon(true);
                    thread.start();
                }
                case "leave" -> members.get(name).leave();
                case "stall" -> members.get(name).stall();
                default -> members.get(name).resume();
            }
        }
        Runtime.getRuntime().halt(0);
    }

    // the commands are flat, their texts plain: this much of JSON will do
    static String text(String line, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": \"([^\"]*)\"").matcher(line);
        return found.find() ? found.group(1) : null;
    }

    static String number(String line, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": (\\d+)").matcher(line);
        found.find();
        return found.group(1);
    }

    static List<String> texts(String line, String name) {
        Matcher list = Pattern.compile("\"" + name + "\": \\[([^\\]]*)\\]").matcher(line);
        list.find();
        List<String> all = new ArrayList<>();
        for (Matcher each = Pattern.compile("\"([^\"]*)\"").matcher(list.group(1)); each.find(); ) all.add(each.group(1));
        return all;
    }

    static class Member implements Runnable, ConsumerRebalanceListener {
        final String name;
        final List<String> topics;
        final Properties settings = new Properties();
        final Map<TopicPartition, Long> positions = new HashMap<>();
        KafkaConsumer<byte[], byte[]> consumer;
        volatile boolean leaving;
        volatile CountDownLatch stalled;

        Member(String name, String line) {
            this.name = name;
            topics = texts(line, "topics");
            settings.put("bootstrap.servers", text(line, "bootstrap"));
            settings.put("client.id", name);
            settings.put("group.id", text(line, "group"));
            settings.put("partition.assignment.strategy",
                texts(line, "assignors").stream().map(ASSIGNORS::get).collect(Collectors.joining(",")));
            settings.put("session.timeout.ms", number(line, "session_ms"));
            settings.put("heartbeat.interval.ms", number(line, "heartbeat_ms"));
            settings.put("max.poll.interval.ms", number(line, "poll_ms"));
            if (text(line, "instance") != null) settings.put("group.instance.id", text(line, "instance"));
            settings.put("enable.auto.commit", "false");
            settings.put("auto.offset.reset", "earliest");
            settings.put("fetch.max.wait.ms", "50");
            settings.put("reconnect.backoff.max.ms", "200");
            settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
            settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        }

        void leave() {
            leaving = true;
            resume();
        }

        void stall() {
            stalled = new CountDownLatch(1);
        }

        void resume() {
            CountDownLatch waiting = stalled;
            stalled = null;
            if (waiting != null) waiting.countDown();
        }

        @Override
        public void run() {
            try (KafkaConsumer<byte[], byte[]> created = new KafkaConsumer<>(settings)) {
                consumer = created;
                consumer.subscribe(topics, this);
                long commitAt = 0;
                while (!leaving || !positions.isEmpty()) {
                    read(consumer.poll(Duration.ofMillis(100)));
                    CountDownLatch waiting = stalled;
                    if (waiting != null) {
                        tell("stalled", List.of(), List.of(), "");
                        waiting.await();
                    }
                    if (leaving || System.nanoTime() > commitAt) {
                        commit(List.copyOf(positions.keySet())).forEach(positions::putIfAbsent);
                        commitAt = System.nanoTime() + COMMIT_EVERY_NS;
                    }
                }
            } catch (Exception error) {
                tell("failed", List.of(), List.of(), error.toString());
                return;
            }
            tell("left", List.of(), List.of(), "");
        }

        void read(ConsumerRecords<byte[], byte[]> polled) {
            for (TopicPartition partition : polled.partitions()) {
                List<ConsumerRecord<byte[], byte[]>> records = polled.records(partition);
                int start = 0;
                for (int at = 1; at <= records.size(); at++) {
                    long last = records.get(at - 1).offset();
                    if (at == records.size() || records.get(at).offset() != last + 1) {
                        tell("read", List.of(partition), List.of(records.get(start).offset(), last), "");
                        start = at;
                    }
                }
                positions.put(partition, records.get(records.size() - 1).offset() + 1);
            }
        }

        // what was refused
        Map<TopicPartition, Long> commit(Collection<TopicPartition> chosen) {
            Map<TopicPartition, Long> taken = new HashMap<>(positions);
            taken.keySet().retainAll(chosen);
            positions.keySet().removeAll(chosen);
            if (taken.isEmpty()) return taken;
            long since = System.nanoTime();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            taken.forEach((partition, offset) -> offsets.put(partition, new OffsetAndMetadata(offset)));
            try {
                consumer.commitSync(offsets);
            } catch (FencedInstanceIdException error) {
                throw error;
            } catch (KafkaException error) {
                tell("refused", List.of(), List.of(), error.getClass().getSimpleName());
                return taken;
            }
            List<TopicPartition> order = List.copyOf(taken.keySet());
            tell("committed", order, order.stream().map(taken::get).toList(), "", since);
            return Map.of();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell("assigned", partitions, List.of(), "");
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            commit(partitions);
            tell("revoked", partitions, List.of(), "");
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            positions.keySet().removeAll(partitions);
            tell("lost", partitions, List.of(), "");
        }

        void tell(String did, Collection<TopicPartition> partitions, Collection<Long> offsets, String why) {
            tell(did, partitions, offsets, why, 0);
        }

        void tell(String did, Collection<TopicPartition> partitions, Collection<Long> offsets, String why, long since) {
            // the clock that all processes of a machine share
            long at = System.nanoTime();
            String places = partitions.stream().map(each -> "[\"" + each.topic() + "\"," + each.partition() + "]")
                .collect(Collectors.joining(","));
            String numbers = offsets.stream().map(String::valueOf).collect(Collectors.joining(","));
            String told = why.replaceAll("[\"\\\\\\p{Cntrl}]", " ");
            synchronized (System.out) {
                System.out.println("{\"at\":" + at + ",\"member\":\"" + name + "\",\"did\":\"" + did
                    + "\",\"partitions\":[" + places + "],\"offsets\":[" + numbers + "],\"why\":\"" + told
                    + "\",\"since\":" + since + "}");
                System.out.flush();
            }
        }
    }
}
