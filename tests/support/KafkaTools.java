/*
 * Apache Kafka's command-line tools, one after another in one JVM: to start one for each costs a second.
 *
 * Each line of the standard input is a command (JSON: `tool`, a main class; `arguments`; `input`; where the
 * class is not one of Kafka's, the folder of its `classes`), each line of the standard output its answer: the
 * exit status and what the tool printed. A tool that would end the process
 * ends only itself: by an error that some of them catch, and talk about, so only what was said before counts.
 * What a tool leaves to be done at the end of its process is done at its own end.
 */

import java.io.*;
import java.lang.reflect.*;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.*;

import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.utils.Exit;

public class KafkaTools {
    static final ObjectMapper JSON = new ObjectMapper();

    static ByteArrayOutputStream out, err;
    static ObjectNode answer;
    static final List<Thread> hooks = new ArrayList<>();

    static class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((status, message) -> { runShutdownHooks(); end(status); throw new Ended(); });
        Exit.setHaltProcedure((status, message) -> { end(status); throw new Ended(); });
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(new Thread(hook, name)));
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null; ) {
            run(JSON.readTree(line));
            answers.println(JSON.writeValueAsString(answer));
        }
        Runtime.getRuntime().halt(0);
    }

    static void end(int status) {
        if (answer == null) {
            answer = JSON.createObjectNode();
            answer.put("status", status);
            answer.put("out", out.toString(StandardCharsets.UTF_8));
            answer.put("err", err.toString(StandardCharsets.UTF_8));
        }
    }

    static void run(JsonNode command) {
        String[] arguments = JSON.convertValue(command.get("arguments"), String[].class);
        answer = null;
        hooks.clear();
        out = new ByteArrayOutputStream();
        err = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(command.get("input").asText().getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        int status = 0;
        try {
            scala.Console.withOut(System.out, () -> scala.Console.withErr(System.err, () -> {
                call(command.get("tool").asText(), command.get("classes"), arguments);
                runShutdownHooks();
                return null;
            }));
        } catch (Ended ended) {
            return;
        } catch (Throwable error) {
            error.printStackTrace(System.err);
            status = 1;
        }
        end(status);
    }

    static void call(String tool, JsonNode classes, String[] arguments) {
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        try {
            if (classes != null) {
                // loaded anew each time, as in a process of its own
                URL folder = new File(classes.asText()).toURI().toURL();
                thread.setContextClassLoader(new URLClassLoader(new URL[] {folder}, before));
            }
            Class<?> main = Class.forName(tool, true, thread.getContextClassLoader());
            Method method = main.getDeclaredMethod("main", String[].class);
            method.setAccessible(true);
            method.invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            throw KafkaTools.<RuntimeException>as_is(error.getCause());
        } catch (ReflectiveOperationException | MalformedURLException error) {
            throw new IllegalArgumentException(error);
        } finally {
            thread.setContextClassLoader(before);
        }
    }

    /** Those that were added by way of Kafka, and those that stand in the runtime's own table. */
    static void runShutdownHooks() {
        try {
            Field field = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
            field.setAccessible(true);
            Map<?, ?> ofTheRuntime = (Map<?, ?>) field.get(null);
            ofTheRuntime.keySet().forEach(hook -> hooks.add((Thread) hook));
            ofTheRuntime.clear();
            for (Thread hook : hooks) {
                hook.start();
                hook.join();
            }
            hooks.clear();
        } catch (ReflectiveOperationException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @SuppressWarnings("unchecked")
    static <E extends Throwable> E as_is(Throwable error) throws E {
        throw (E) error;
    }
}
