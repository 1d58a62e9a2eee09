import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.TreeSet;

/** Reads a .properties file as Java does, and prints a line a property: the UTF-16 units of key and value. */
public class ReadProperties {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (InputStream file = Files.newInputStream(Path.of(arguments[0]))) {
            properties.load(file);
        }
        for (String key : new TreeSet<>(properties.stringPropertyNames())) {
            System.out.println(units(key) + "=" + units(properties.getProperty(key)));
        }
    }

    static String units(String text) {
        StringBuilder hexadecimal = new StringBuilder();
        for (char unit : text.toCharArray()) {
            hexadecimal.append(String.format("%04x", (int) unit));
        }
        return hexadecimal.toString();
    }
}
