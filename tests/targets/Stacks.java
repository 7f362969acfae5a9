package targets;

import java.io.InputStream;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Threads that wait inside a native, each below a stack of another shape, while the VM itself tells their frames.
 *
 * <p>{@code run park SHAPES} (or {@code all}) has one thread for each shape wait and answers, for each, with a line
 * {@code stack SHAPE RSP RBP} and its frames, innermost first: {@code at CLASS METHOD LINE}. The registers are those at
 * the native's first instruction. {@code run release} lets all go on to their end. {@code run warm N SHAPES} runs them
 * N times without waiting, so that their code is compiled. From {@code run churn N} on, a thread loads, compiles and
 * forgets classes without end, with a full collection after every N of them. {@code run collect} is one such collection.
 * {@code run redefine} has the VM replace the class {@code Redefined}, so that methods that wait become obsolete.
 */
final class Stacks {
    /** What a thread does until it calls the native with its number. */
    interface Shape {
        void run(int slot) throws Throwable;
    }

    private static final Map<String, Shape> SHAPES = new LinkedHashMap<>();
    private static final List<Thread> PARKED = new ArrayList<>();

    /** Waits, if the slot is armed. */
    static native int park(int slot);

    /** Calls {@code callback.run()} from C. */
    static native void callBack(Runnable callback);

    /** Calls the function at {@code address} from C. */
    static native void callPointer(long address, int argument);

    private static native void arm(int slot, boolean armed);

    private static native void awaitParked();

    private static native void release(int slot);

    /** The stack pointer and the frame pointer with which {@code park} was entered. */
    private static native long[] registers(int slot);

    /** Has the VM use {@code bytes} for {@code type} from the next call on. */
    private static native int redefine(Class<?> type, byte[] bytes);

    private Stacks() {}

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        StackShapes.addTo(SHAPES);
        Target.serve(Map.of(
            "park", Stacks::park, "release", Stacks::release, "warm", Stacks::warm, "churn", Stacks::churn, "collect",
            (words, out) -> System.gc(), "redefine", (words, out) -> redefine()));
    }

    private static void warm(String[] args, PrintStream out) throws Exception {
        int times = Integer.parseInt(args[0]);
        Thread thread = new Thread(() -> {
            for (String name : named(args[1])) {
                for (int i = 0; i < times; i++) {
                    go(SHAPES.get(name), 0);
                }
            }
        });
        thread.start();
        thread.join();
    }

    private static List<String> named(String shapes) {
        return shapes.equals("all") ? List.copyOf(SHAPES.keySet()) : List.of(shapes.split(","));
    }

    private static void churn(String[] args, PrintStream out) {
        int collectAfter = Integer.parseInt(args[0]);
        Thread thread = new Thread(() -> {
            for (int i = 1;; i++) {
                int times = i % 8 == 0 ? 6_000 : 300;
                go(slot -> StackShapes.fresh(times, slot), 0);
                if (i % collectAfter == 0) {
                    System.gc();
                }
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private static void redefine() throws Exception {
        byte[] bytes;
        try (InputStream file = Stacks.class.getResourceAsStream("Redefined.class")) {
            bytes = file.readAllBytes();
        }
        int changed = 0;
        for (int i = 0; i + 2 < bytes.length; i++) {
            boolean pushes = bytes[i] == 0x11 && bytes[i + 1] == 0x5a && bytes[i + 2] == 0x17;
            if (pushes) {
                bytes[i + 2] = 0x18;
                changed++;
            }
        }
        int error = redefine(Redefined.class, bytes);
        if (changed != 2 || error != 0) {
            throw new IllegalStateException(changed + " changes, error " + error);
        }
    }

    private static void go(Shape shape, int slot) {
        try {
            shape.run(slot);
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    private static void park(String[] args, PrintStream out) throws Exception {
        List<String> names = named(args[0]);
        int slot = 1;
        for (String name : names) {
            Shape shape = SHAPES.get(name);
            int own = slot++;
            arm(own, true);
            Thread thread = start(name, () -> go(shape, own));
            PARKED.add(thread);
            awaitParked();
        }
        StackShapes.afterParking();
        for (int i = 0; i < names.size(); i++) {
            long[] registers = registers(i + 1);
            out.println("stack " + names.get(i) + " " + registers[0] + " " + registers[1]);
            StringBuilder frames = new StringBuilder();
            for (StackTraceElement frame : PARKED.get(i).getStackTrace()) {
                frames.append("at ").append(frame.getClassName()).append(' ').append(frame.getMethodName()).append(' ');
                frames.append(frame.getLineNumber()).append('\n');
            }
            out.print(frames);
        }
    }

    /** A virtual thread for the shapes that are called so, where there are any. */
    private static Thread start(String name, Runnable task) throws ReflectiveOperationException {
        if (name.startsWith("virtual") && Runtime.version().feature() >= 21) {
            return (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, task);
        }
        // Deep recursion in interpreted code wants room.
        Thread thread = new Thread(null, task, name, 16 << 20);
        thread.start();
        return thread;
    }

    private static void release(String[] args, PrintStream out) throws Exception {
        for (int slot = 1; slot <= PARKED.size(); slot++) {
            arm(slot, false);
            release(slot);
        }
        for (Thread thread : PARKED) {
            thread.join();
        }
        PARKED.clear();
    }
}
