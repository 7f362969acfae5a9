package targets;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The target for exact counts: makes known numbers of calls to natives of many shapes. */
final class Shapes {
    /** Deeper than the tracer can follow. */
    private static final int DEEP = 100;
    private static final int NESTED = 10;

    private static final Map<String, Crowd.Round> SHAPES = new LinkedHashMap<>();
    private static final List<Thread> BLOCKED = new ArrayList<>();

    /** Calls that the C code counted so far, by counter. */
    static native long[] counters();

    /** Calls by {@link #workAtTimes}. */
    private static long uneven;

    /** Binds the natives of a class with RegisterNatives. */
    static native void register(Class<?> registered);

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        register(Registered.class);
        Made.make();
        for (Native n : Native.values()) {
            Class.forName(n.owner);
        }
        describeShapes();
        Target.serve(Map.of(
                "calls", Shapes::calls,
                "sleep", (a, out) -> timed(Native.SLEEP, 0, a, Timed::sleep, out),
                "work", (a, out) -> timed(Native.WORK, 2, a, Timed::work, out),
                "uneven", (a, out) -> timed(Native.WORK, 2, a, Shapes::workAtTimes, out),
                "block", (a, out) -> block(Integer.parseInt(a[0])),
                "release", (a, out) -> release(),
                "collect", (a, out) -> System.gc(),
                "register", (a, out) -> register(Integer.parseInt(a[0])),
                "speed", (a, out) -> out.println("speed " + speed(Integer.parseInt(a[0])))));
    }

    private static void register(int times) {
        for (int i = 0; i < times; i++) {
            register(Registered.class);
        }
    }

    private static void describeShapes() {
        Plain plain = new Plain();
        SHAPES.put("static", t -> call(t, Native.ADD, Plain.add(1, 2) == 3));
        SHAPES.put("instance", t -> call(t, Native.TWICE, plain.twice(21) == 42));
        SHAPES.put("overloaded", t -> {
            call(t, Native.OVER_INT, Plain.over(1) == 1);
            call(t, Native.OVER_LONG, Plain.over(2L) == 2);
            call(t, Native.OVER_TEXT, Plain.over("one", new int[] {2}) == 4);
        });
        SHAPES.put("arguments", t -> call(t, Native.MANY,
                Plain.many(1, 2, 3, 4, (byte) 5, (short) 6, (char) 7, true, 9, 10, 11, 12, t, 14) == 86));
        SHAPES.put("inner", t -> call(t, Native.INNER, Outer.Inner.inner(6) == 6));
        SHAPES.put("names", t -> {
            call(t, Native.UNDER_SCORE, Été.under_score() == 7);
            call(t, Native.UNDER_ONE, Été._1() == 8);
            call(t, Native.ACCENT, Été.compté() == 9);
            call(t, Native.KANJI, Été.日本() == 10);
            call(t, Native.SUPPLEMENTARY, Été.𝒳() == 11);
        });
        SHAPES.put("registered", t -> call(t, Native.HIDDEN, Registered.hidden(12) == 12));
        SHAPES.put("aliases", t -> {
            call(t, Native.FIRST_ALIAS, Registered.firstAlias() == 1);
            call(t, Native.SECOND_ALIAS, Registered.secondAlias() == 1);
        });
        SHAPES.put("entries", Shapes::entries);
        SHAPES.put("locked", t -> call(t, Native.LOCK_FIRST, Entries.lockFirst() == 30));
        SHAPES.put("nested", t -> nested(t, NESTED));
        SHAPES.put("deep", t -> nested(t, DEEP));
        SHAPES.put("throwing", t -> {
            call(t, Native.THROWN, raises(Throwing::thrown, "raised in a native"));
            call(t, Native.PENDING, raises(Throwing::pending, "raised in a callback"));
        });
        SHAPES.put("dying", t -> {
            Dying.spawn();
            t.made(Native.DIE);
        });
        SHAPES.put("jumping", t -> {
            call(t, Native.JUMP_OUTER, Jumping.outer() == 1);
            t.made(Native.JUMP_INNER);
        });
        SHAPES.put("onward", Shapes::onward);
        SHAPES.put("made", t -> call(t, Native.MADE, Made.made() == 35));
    }

    private static void entries(Crowd.Tally t) {
        call(t, Native.PUSH_FIRST, Entries.pushFirst() == 14);
        call(t, Native.MOV_FIRST, Entries.movFirst() == 15);
        call(t, Native.MOV_THEN_PUSH, Entries.movThenPush() == 16);
        call(t, Native.MOV_THEN_LOOP, Entries.movThenLoop() == 17);
        call(t, Native.TEST_THEN_BRANCH, Entries.testThenBranch(true) == 18);
        call(t, Native.TEST_THEN_BRANCH, Entries.testThenBranch(false) == 18);
        call(t, Native.ENDBR_FIRST, Entries.endbrFirst() == 19);
        call(t, Native.SUB_THEN_CALL, Entries.subThenCall() == 20);
    }

    /** Of each of these functions one call is made by the VM; the others are made by the functions. */
    private static void onward(Crowd.Tally t) {
        call(t, Native.ONWARD_LEAF, Onward.leaf() == 31);
        call(t, Native.ONWARD_CALL, Onward.call() == 31);
        call(t, Native.ONWARD_JUMP, Onward.jump() == 31);
        t.made(Native.ONWARD_LEAF, 2);
        call(t, Native.ONWARD_AGAIN, Onward.again(3) == 34);
        t.made(Native.ONWARD_AGAIN, 2);
    }

    private static void nested(Crowd.Tally t, int depth) {
        if (Nested.descend(depth) != depth) {
            throw new AssertionError("nested " + depth);
        }
        t.made(Native.DESCEND, depth);
    }

    private static void call(Crowd.Tally t, Native method, boolean right) {
        if (!right) {
            throw new AssertionError(method + " gave a wrong result");
        }
        t.made(method);
    }

    private static boolean raises(Runnable call, String message) {
        try {
            call.run();
            return false;
        } catch (IllegalStateException e) {
            return e.getMessage().equals(message);
        }
    }

    /** {@code calls SHAPE THREADS ROUNDS}: prints for each method called what Java and C counted. */
    private static void calls(String[] args, PrintStream out) throws Exception {
        Crowd.Round round = args[0].equals("all") ? Shapes::everything : SHAPES.get(args[0]);
        if (round == null) {
            throw new IllegalArgumentException("no shape " + args[0] + " in " + SHAPES.keySet());
        }
        long[] before = counters();
        long[] made = Crowd.run(Integer.parseInt(args[1]), Integer.parseInt(args[2]), round);
        long[] after = counters();
        for (Native n : Native.values()) {
            long counted = after[n.counter] - before[n.counter];
            if (made[n.ordinal()] > 0 || counted > 0) {
                out.println(String.join(" ", "made", n.owner, n.method, n.signature,
                        "" + made[n.ordinal()], "" + n.counter, "" + counted));
            }
        }
    }

    /** Every shape that can be probed, leaves nothing behind and is timed without loss. */
    private static void everything(Crowd.Tally t) {
        SHAPES.forEach((name, round) -> {
            if (!List.of("locked", "deep", "dying", "jumping", "onward", "made").contains(name)) {
                round.run(t);
            }
        });
    }

    private interface TimedCall {
        void run(long argument);
    }

    /** {@code NAME CALLS ARGUMENT}: prints the calls, and their total and longest time as the native measured it. */
    private static void timed(Native method, int at, String[] args, TimedCall call, PrintStream out) {
        int calls = Integer.parseInt(args[0]);
        Timed.reset();
        for (int i = 0; i < calls; i++) {
            call.run(Long.parseLong(args[1]));
        }
        long[] measured = Timed.measured();
        out.println(String.join(" ", "timed", method.owner, method.method, method.signature,
                "" + calls, "" + measured[at], "" + measured[at + 1]));
    }

    /** One of a hundred calls works, the others return at once. */
    private static void workAtTimes(long iterations) {
        Timed.work(uneven++ % 100 == 0 ? iterations : 0);
    }

    /** Puts as many more threads into {@link Blocking#block} and returns when all are inside. */
    private static void block(int threads) {
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(Blocking::block, "blocked-" + BLOCKED.size());
            BLOCKED.add(thread);
            thread.start();
        }
        Blocking.awaitInside(BLOCKED.size());
    }

    private static void release() throws InterruptedException {
        Blocking.release();
        for (Thread thread : BLOCKED) {
            thread.join();
        }
        BLOCKED.clear();
    }

    /** Nanoseconds per call of the smallest native, the best of five runs. */
    private static double speed(int calls) {
        long best = Long.MAX_VALUE;
        for (int run = 0; run < 5; run++) {
            long began = System.nanoTime();
            for (int i = 0; i < calls; i++) {
                Plain.add(i, run);
            }
            best = Math.min(best, System.nanoTime() - began);
        }
        return (double) best / calls;
    }
}
