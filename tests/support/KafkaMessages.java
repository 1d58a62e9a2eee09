/*
 * Apache Kafka's own message classes, asked over a pipe: what bytes they write, and what they read in bytes.
 *
 * Each line of the standard input is a command (JSON): `message` (the name of a class without "Data"), `version`,
 * and either `fields` (the message as Kafka's own JSON) or `hex` (its bytes). Each line of the standard output is
 * the answer: `hex`, the bytes that Kafka writes of it, and `fields`, what Kafka reads in them.
 */

import java.io.*;
import java.lang.reflect.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;

public class KafkaMessages {
    static final ObjectMapper JSON = new ObjectMapper();
    static final String PACKAGE = "org.apache.kafka.common.message.";

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null; )
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
    }

    static ObjectNode answer(JsonNode command) throws Exception {
        ObjectNode answer = JSON.createObjectNode();
        String name = PACKAGE + command.get("message").asText();
        if (!name.endsWith("Data"))
            name += "Data";
        short version = (short) command.get("version").asInt();
        try {
            Message message = command.has("fields") ? fromFields(name, version, command.get("fields"))
                : fromBytes(name, version, HexFormat.of().parseHex(command.get("hex").asText()));
            byte[] written = bytes(MessageUtil.toByteBufferAccessor(message, version).buffer());
            answer.put("hex", HexFormat.of().formatHex(written));
            answer.set("fields", fields(name, version, fromBytes(name, version, written)));
        } catch (InvocationTargetException thrown) {
            answer.put("error", String.valueOf(thrown.getCause()));
        } catch (RuntimeException thrown) {
            answer.put("error", String.valueOf(thrown));
        }
        return answer;
    }

    static Message fromFields(String name, short version, JsonNode fields) throws Exception {
        Method read = Class.forName(name + "JsonConverter").getMethod("read", JsonNode.class, short.class);
        return (Message) read.invoke(null, fields, version);
    }

    static Message fromBytes(String name, short version, byte[] bytes) throws Exception {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        Constructor<?> read = Class.forName(name).getConstructor(Readable.class, short.class);
        Message message = (Message) read.newInstance(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining())
            throw new IllegalArgumentException(buffer.remaining() + " bytes are left behind the message");
        return message;
    }

    static JsonNode fields(String name, short version, Message message) throws Exception {
        Class<?> type = Class.forName(name);
        Method write = Class.forName(name + "JsonConverter").getMethod("write", type, short.class, boolean.class);
        return (JsonNode) write.invoke(null, message, version, true);
    }

    static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }
}
