package targets;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;

/**
 * The pipe protocol between a target and the test that started it.
 *
 * <p>The target prints {@code ready PID} once everything is loaded, then obeys lines on stdin: {@code run NAME ARGS}
 * is answered by any number of data lines and one {@code done NAME} or {@code failed NAME CAUSE}; {@code exit} and
 * the end of stdin end the process.
 */
final class Target {
    /** One thing that a target can be told to do. What it prints is part of its answer. */
    interface Command {
        void run(String[] args, PrintStream out) throws Exception;
    }

    private Target() {}

    static void serve(Map<String, Command> commands) throws IOException {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        out.println("ready " + ProcessHandle.current().pid());
        for (String line = in.readLine(); line != null && !line.equals("exit"); line = in.readLine()) {
            obey(line.split(" "), commands, out);
        }
        // Threads that are blocked in a native, or died in one, would hold up an orderly exit.
        Runtime.getRuntime().halt(0);
    }

    private static void obey(String[] words, Map<String, Command> commands, PrintStream out) {
        String name = words.length > 1 ? words[1] : "";
        try {
            if (!words[0].equals("run") || !commands.containsKey(name)) {
                throw new IllegalArgumentException("unknown command: " + String.join(" ", words));
            }
            commands.get(name).run(Arrays.copyOfRange(words, 2, words.length), out);
            out.println("done " + name);
        } catch (Exception | LinkageError e) {
            out.println("failed " + name + " " + e + (e.getCause() == null ? "" : ", because of " + e.getCause()));
        }
    }
}
