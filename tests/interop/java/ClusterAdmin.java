/*
 * What Kafka's Java admin client can do with three nodes and a fenced broker, step by step. Each line of the
 * output is what one step gave; nodes that are chosen by chance are not named.
 *
 * usage: ClusterAdmin bootstrap fenced-broker
 */

import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;

public class ClusterAdmin {
    static final long DEADLINE_NS = 120_000_000_000L, PAUSE_MS = 20;
    // what is served only in Apache Kafka
    static final Set<String> OTHER_FEATURES = Set.of("group.version", "share.version", "streams.version");

    static Admin admin;

    interface Work {
        Object run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        int gone = Integer.parseInt(arguments[1]);
        try (Admin opened = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            admin = opened;
            cluster(gone);
            features();
            topics();
            configs();
            voters();
            step("unregister", () -> admin.unregisterBroker(gone).all().get());
            await(() -> !brokers().containsKey(gone), "gone");
            step("unregister again", () -> admin.unregisterBroker(gone).all().get());
        }
    }

    static void step(String name, Work work) {
        Object told;
        try {
            told = work.run();
        } catch (Exception thrown) {
            Throwable error = thrown instanceof ExecutionException ? thrown.getCause() : thrown;
            told = error.getClass().getSimpleName();
        }
        System.out.println(name + ": " + told);
    }

    /** Waits for what brokers hear of a little later. */
    static void await(Callable<Boolean> holds, String what) throws Exception {
        long deadline = System.nanoTime() + DEADLINE_NS;
        while (!holds.call()) {
            if (System.nanoTime() > deadline) throw new AssertionError("not within two minutes: " + what);
            Thread.sleep(PAUSE_MS);
        }
    }

    static Map<Integer, Boolean> brokers() throws Exception {
        DescribeClusterOptions all = new DescribeClusterOptions().includeFencedBrokers(true);
        Map<Integer, Boolean> found = new TreeMap<>();
        for (Node each : admin.describeCluster(all).nodes().get()) found.put(each.id(), each.isFenced());
        return found;
    }

    static void cluster(int gone) throws Exception {
        Map<Integer, Boolean> told = new TreeMap<>();
        await(() -> {
            told.clear();
            told.putAll(brokers());
            return told.containsKey(gone);
        }, "a fenced broker");
        step("brokers", () -> told);
        step("cluster", () -> {
            DescribeClusterResult described = admin.describeCluster();
            List<Integer> ids = described.nodes().get().stream().map(Node::id).sorted().toList();
            return ids + " " + ids.contains(described.controller().get().id()) + " " + described.clusterId().get().length();
        });
    }

    static void features() {
        step("features", () -> {
            FeatureMetadata found = admin.describeFeatures().featureMetadata().get();
            Map<String, Object> features = new TreeMap<>(found.supportedFeatures());
            found.finalizedFeatures().forEach((name, range) -> features.put(name + " is", range));
            features.keySet().removeIf(name -> OTHER_FEATURES.contains(name.split(" ")[0]));
            return features;
        });
        update("kraft.version", 1, FeatureUpdate.UpgradeType.UPGRADE);
        update("metadata.version", 1000, FeatureUpdate.UpgradeType.UPGRADE);
        update("metadata.version", 28, FeatureUpdate.UpgradeType.UPGRADE);
        update("metadata.version", 28, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE);
        update("no.such.version", 1, FeatureUpdate.UpgradeType.UPGRADE);
    }

    static void update(String name, int level, FeatureUpdate.UpgradeType kind) {
        FeatureUpdate update = new FeatureUpdate((short) level, kind);
        UpdateFeaturesOptions validated = new UpdateFeaturesOptions().validateOnly(true);
        step(kind + " of " + name + " to " + level, () -> admin.updateFeatures(Map.of(name, update), validated).all().get());
    }

    static void topics() throws Exception {
        step("topic", () -> {
            CreateTopicsResult made = admin.createTopics(List.of(new NewTopic("java-wide", 6, (short) 1)));
            return made.numPartitions("java-wide").get() + " " + made.replicationFactor("java-wide").get();
        });
        step("copies", () -> admin.createTopics(List.of(new NewTopic("java-copies", 1, (short) 5))).all().get());
        Map<Integer, Integer> leaders = new TreeMap<>();
        await(() -> {
            leaders.clear();
            try {
                TopicDescription described = admin.describeTopics(List.of("java-wide")).allTopicNames().get().get("java-wide");
                described.partitions().stream().filter(each -> each.leader() != null)
                    .forEach(each -> leaders.merge(each.leader().id(), 1, Integer::sum));
            } catch (ExecutionException notHeardOf) {
                return false;
            }
            return leaders.values().stream().mapToInt(each -> each).sum() == 6;
        }, "leaders of all partitions");
        step("leaders", () -> leaders);
        step("topic deleted", () -> admin.deleteTopics(List.of("java-wide")).all().get());
    }

    static void set(String broker, String name, String value) {
        set(broker, name, value, new AlterConfigsOptions());
    }

    static void set(String broker, String name, String value, AlterConfigsOptions options) {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, broker);
        step("broker " + broker + " " + name + "=" + value,
            () -> admin.incrementalAlterConfigs(Map.of(resource, List.of(change)), options).all().get());
    }

    static ConfigEntry read(String broker, String name) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.BROKER, broker);
        return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name);
    }

    static void configs() throws Exception {
        set("1", "background.threads", "9");
        set("", "message.max.bytes", "3000000");
        set("1", "background.threads", "many");
        // the client waits for that broker to appear, by default for a minute
        set("99", "background.threads", "9", new AlterConfigsOptions().timeoutMs(3_000));
        for (String broker : List.of("1", "2", "3")) {
            await(() -> read(broker, "message.max.bytes").value().equals("3000000"), "the cluster's setting");
            step("all at " + broker, () -> read(broker, "message.max.bytes").source());
        }
        await(() -> read("1", "background.threads").value().equals("9"), "the broker's setting");
        for (String broker : List.of("1", "2")) {
            ConfigEntry entry = read(broker, "background.threads");
            step("own at " + broker, () -> entry.value() + " " + entry.source());
        }
    }

    static QuorumInfo quorum() throws Exception {
        return admin.describeMetadataQuorum().quorumInfo().get();
    }

    /** Whether so many vote, and the other controllers have caught up as observers. */
    static boolean isWhole(int voters) throws Exception {
        QuorumInfo now = quorum();
        long caughtUp = now.observers().stream()
            .filter(each -> each.replicaId() <= 3 && each.logEndOffset() >= now.highWatermark() - 1).count();
        return now.highWatermark() > 0 && now.voters().size() == voters && caughtUp == 3 - voters;
    }

    static void voters() throws Exception {
        await(() -> isWhole(3), "three voters");
        QuorumInfo before = quorum();
        step("quorum", () -> before.voters().stream().map(QuorumInfo.ReplicaState::replicaId).sorted().toList() + " " +
            (before.leaderEpoch() > 0) + " " + before.nodes().keySet().stream().sorted().toList());
        QuorumInfo.ReplicaState chosen =
            before.voters().stream().filter(each -> each.replicaId() != before.leaderId()).findFirst().get();
        int id = chosen.replicaId();
        Uuid directory = chosen.replicaDirectoryId();
        Set<RaftVoterEndpoint> endpoints = new HashSet<>(before.nodes().get(id).endpoints());
        step("voter that is there", () -> admin.addRaftVoter(id, directory, endpoints).all().get());
        step("voter removed", () -> admin.removeRaftVoter(id, directory).all().get());
        await(() -> isWhole(2), "two voters");
        step("voter removed again", () -> admin.removeRaftVoter(id, directory).all().get());
        step("voter added", () -> admin.addRaftVoter(id, directory, endpoints).all().get());
        await(() -> isWhole(3), "three voters again");
        step("three voters", () -> quorum().voters().stream().map(QuorumInfo.ReplicaState::replicaId).sorted().toList());
    }
}
