import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;

/** Makes a topic and alters settings of broker 1 and of all brokers, then prints every setting, tabs between. */
public class DescribeSettings {
    static final ConfigResource BROKER = new ConfigResource(ConfigResource.Type.BROKER, "1");
    static final ConfigResource ALL_BROKERS = new ConfigResource(ConfigResource.Type.BROKER, "");
    static final ConfigResource TOPIC = new ConfigResource(ConfigResource.Type.TOPIC, "described");

    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            admin.createTopics(List.of(new NewTopic("described", 1, (short) 1).configs(
                Map.of("segment.bytes", "2000000", "cleanup.policy", "compact, delete")))).all().get();
            admin.incrementalAlterConfigs(Map.of(
                BROKER, List.of(set("log.flush.interval.ms", "7200000"), set("max.connections", "1234")),
                ALL_BROKERS, List.of(set("log.segment.bytes", "3000000"), set("max.connections", "4321"))
            )).all().get();
            Map<ConfigResource, Config> described = describe(admin);
            long deadline = System.nanoTime() + 30_000_000_000L;
            // the broker follows the metadata log a little later
            while (!described.get(BROKER).get("max.connections").value().equals("1234")
                || !described.get(TOPIC).get("flush.ms").value().equals("7200000")
                || described.get(TOPIC).get("segment.bytes").synonyms().size() < 3) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("the altered settings never came through");
                }
                Thread.sleep(20);
                described = describe(admin);
            }
            print("broker", described.get(BROKER).entries());
            print("topic", described.get(TOPIC).entries());
        }
    }

    static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }

    static Map<ConfigResource, Config> describe(Admin admin) throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true);
        return admin.describeConfigs(List.of(BROKER, TOPIC), options).all().get();
    }

    static void print(String resource, Collection<ConfigEntry> entries) {
        for (ConfigEntry each : entries) {
            List<String> columns = new ArrayList<>(List.of(resource, each.name(), String.valueOf(each.value()),
                source(each.source()), each.type().name(), "" + each.isReadOnly(), "" + each.isSensitive(),
                "" + each.isDefault()));
            for (ConfigEntry.ConfigSynonym one : each.synonyms()) {
                columns.add(one.name() + "=" + one.value() + "@" + source(one.source()));
            }
            System.out.println(String.join("\t", columns));
        }
    }

    static String source(ConfigEntry.ConfigSource source) {
        return source.name().replace("DYNAMIC_TOPIC", "TOPIC").replace("_CONFIG", "");
    }
}
