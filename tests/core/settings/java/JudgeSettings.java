import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Reads cases, one a line: "broker" or "topic", then key=value, all between tabs. Says what Kafka thinks. */
public class JudgeSettings {
    static final Map<String, Object> DEFAULTS = defaults();

    static Map<String, Object> defaults() {
        Properties file = new Properties();
        file.putAll(Map.of("process.roles", "broker,controller", "node.id", "1", "controller.listener.names",
            "CONTROLLER", "controller.quorum.voters", "1@h:1", "listeners", "PLAINTEXT://:9092,CONTROLLER://:1"));
        return KafkaConfig.fromProps(file).extractLogConfigMap();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader cases = new BufferedReader(new InputStreamReader(System.in));
        for (String line = cases.readLine(); line != null; line = cases.readLine()) {
            String[] parts = line.split("\t");
            Map<String, String> properties = new TreeMap<>();
            for (int at = 1; at < parts.length; at++) {
                String[] pair = parts[at].split("=", 2);
                properties.put(pair[0], pair[1]);
            }
            try {
                if (parts[0].equals("topic")) {
                    LogConfig.validate(Map.of(), properties, DEFAULTS, false);
                } else {
                    Properties file = new Properties();
                    file.putAll(properties);
                    KafkaConfig.fromProps(file);
                }
                System.out.println("accepted");
            } catch (RuntimeException refusal) {
                System.out.println("refused: " + String.valueOf(refusal.getMessage()).replace('\n', ' '));
            }
        }
    }
}
