package targets;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/** Natives that look members up, again and again, in classes that come, go and change. */
public final class Looking {
    private static final int MEMBERS = 14;
    /** Look-ups in a class before the next. */
    private static final int EACH = 4_000;

    private Looking() {}

    static native long compare(Class<?> type, int members, int rounds);

    static native boolean find(Class<?> type, int kind, String name, boolean original);

    static native boolean findThrowing(Class<?> type, Throwable thrown);

    static native double time(Class<?>[] types, int kind, int members, int rounds);

    static native int replaced();

    static native int wrap(boolean wraps);

    static native long wrappedCalls();

    static native int redefine(Class<?> type, byte[] bytes);

    /** Cannot be initialised; looks itself up before it fails. */
    static final class Failing {
        static int g0;

        static {
            if (!find(Failing.class, 3, "g0", false) || !find(Failing.class, 3, "g0", false)) {
                throw new AssertionError("a class that is being initialised was not looked up in");
            }
            fail();
        }

        private static void fail() {
            throw new IllegalStateException("never initialised");
        }
    }

    private static final class Loader extends ClassLoader {
        Class<?> define(byte[] bytes) {
            return defineClass("targets.Members", bytes, 0, bytes.length);
        }
    }

    public static void main(String[] args) throws Exception {
        System.load(args[0]);
        Target.serve(Map.of("churn", (a, out) -> {
            out.println(churn(Integer.parseInt(a[0]), Integer.parseInt(a[1])));
        }, "failures", (a, out) -> failures(), "initialising", (a, out) -> initialising(), "replaced", (a, out) -> {
            out.println(replaced());
        }, "wrap", (a, out) -> {
            must(wrap(Boolean.parseBoolean(a[0])) == 0, "the table cannot be replaced");
        }, "wrapped", (a, out) -> {
            out.println(wrappedCalls());
        }, "time", (a, out) -> {
            out.println(measure(Integer.parseInt(a[0]), Integer.parseInt(a[1]), Integer.parseInt(a[2]), Integer.parseInt(a[3])));
        }));
    }

    /** A class with so many methods, static methods, fields and static fields. */
    private static byte[] members(int count) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeInt(0xcafebabe);
        out.writeInt(52);
        int first = 8;
        out.writeShort(first + 4 * count);
        text(out, "targets/Members");
        out.writeByte(7);
        out.writeShort(1);
        text(out, "java/lang/Object");
        out.writeByte(7);
        out.writeShort(3);
        text(out, "()V");
        text(out, "I");
        text(out, "Code");
        for (String letter : new String[] {"m", "s", "f", "g"}) {
            for (int i = 0; i < count; i++) {
                text(out, letter + i);
            }
        }
        out.writeShort(0x21);
        out.writeShort(2);
        out.writeShort(4);
        out.writeShort(0);
        out.writeShort(2 * count);
        for (int i = 0; i < 2 * count; i++) {
            member(out, i < count ? 1 : 9, first + 2 * count + i, 6, 0);
        }
        out.writeShort(2 * count);
        for (int i = 0; i < 2 * count; i++) {
            member(out, i < count ? 1 : 9, first + i, 5, 1);
            out.writeShort(7);
            out.writeInt(13);
            out.writeInt(1 << 16 | 1);
            out.writeInt(1);
            out.writeByte(0xb1);
            out.writeInt(0);
        }
        out.writeShort(0);
        return bytes.toByteArray();
    }

    private static void text(DataOutputStream out, String text) throws IOException {
        out.writeByte(1);
        out.writeUTF(text);
    }

    private static void member(DataOutputStream out, int access, int name, int type, int attributes) throws IOException {
        out.writeShort(access);
        out.writeShort(name);
        out.writeShort(type);
        out.writeShort(attributes);
    }

    /** Has threads look members up, each in classes of its own one after another, and in one of all, which is redefined meanwhile. */
    private static String churn(int threads, int rounds) throws Exception {
        byte[] bytes = members(MEMBERS);
        Class<?> shared = new Loader().define(bytes);
        AtomicLong wrong = new AtomicLong();
        AtomicBoolean ends = new AtomicBoolean();
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            all[i] = new Thread(() -> {
                for (int round = 0; round < rounds; round++) {
                    wrong.addAndGet(compare(new Loader().define(bytes), MEMBERS, EACH) + compare(shared, MEMBERS, EACH));
                }
            });
            all[i].start();
        }
        Thread changing = new Thread(() -> {
            while (!ends.get()) {
                wrong.addAndGet(redefine(shared, bytes));
                System.gc();
            }
        });
        changing.start();
        for (Thread thread : all) {
            thread.join();
        }
        ends.set(true);
        changing.join();
        return 2L * threads * rounds * EACH + " " + wrong.get();
    }

    /** What is not there throws the same as ever, whatever else is there; and nothing is found while something is pending. */
    private static void failures() throws Exception {
        Class<?> type = new Loader().define(members(MEMBERS));
        for (int round = 0; round < 1_000; round++) {
            for (int kind = 0; kind < 4; kind++) {
                String name = round % 2 == 0 ? "absent" : "m99";
                String[] said = new String[2];
                for (int way = 0; way < 2; way++) {
                    try {
                        must(!find(type, kind, name, way == 1), "what is not there was found");
                    } catch (LinkageError thrown) {
                        said[way] = thrown.toString();
                    }
                }
                must(said[0] != null && said[0].equals(said[1]), said[0] + ", not " + said[1]);
            }
            must(find(type, 0, "m0", false), "what is there was not found");
            IllegalStateException pending = new IllegalStateException("pending");
            try {
                findThrowing(type, pending);
                throw new AssertionError("what was pending is gone");
            } catch (IllegalStateException thrown) {
                must(thrown == pending, "another exception is pending");
            }
        }
    }

    /** What a class has found in itself while it was initialised in vain is not found afterwards. */
    private static void initialising() {
        for (int round = 0; round < 100; round++) {
            try {
                must(!find(Failing.class, 3, "g0", false), "a class is looked up in that cannot be initialised");
            } catch (ExceptionInInitializerError | NoClassDefFoundError expected) {
                must(round == 0 == expected instanceof ExceptionInInitializerError, expected.toString());
            }
        }
    }

    private static double measure(int classes, int kind, int members, int rounds) throws Exception {
        Class<?>[] types = new Class<?>[classes];
        for (int i = 0; i < classes; i++) {
            types[i] = new Loader().define(members(members));
        }
        time(types, kind, members, rounds);
        return time(types, kind, members, rounds);
    }

    private static void must(boolean holds, String otherwise) {
        if (!holds) {
            throw new IllegalStateException(otherwise);
        }
    }
}
