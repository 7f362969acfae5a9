package targets;

import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.ProtectionDomain;

/**
 * An agent that changes a class of {@code Trees} before anybody else does: two numbers among its constants. One is changed again whenever the class is
 * retransformed, the other once, when it is loaded.
 */
public final class Second {
    private static final String MARKED = "targets/Trees$Marked";

    private Second() {}

    public static void premain(String arguments, Instrumentation instrumentation) {
        instrumentation.addTransformer(new Change(Trees.Marked.FIRST, Trees.Marked.FIRST + 1), true);
        instrumentation.addTransformer(new Change(Trees.Marked.SECOND, Trees.Marked.SECOND + 1), false);
    }

    private static final class Change implements ClassFileTransformer {
        private final int from;
        private final int to;

        Change(int from, int to) {
            this.from = from;
            this.to = to;
        }

        @Override
        public byte[] transform(
                ClassLoader loader, String name, Class<?> redefined, ProtectionDomain domain, byte[] file) {
            if (!MARKED.equals(name)) {
                return null;
            }
            byte[] changed = file.clone();
            for (int at = 0; at + 4 <= file.length; at++) {
                if (number(file, at) == from) {
                    for (int part = 0; part < 4; part++) {
                        changed[at + part] = (byte) (to >>> 8 * (3 - part));
                    }
                }
            }
            return changed;
        }

        private static int number(byte[] file, int at) {
            return (file[at] & 255) << 24 | (file[at + 1] & 255) << 16 | (file[at + 2] & 255) << 8 | file[at + 3] & 255;
        }
    }
}
