package targets;

import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtSession;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** Inference as a service that scores each request does it: a small model, so that calls are frequent. */
final class Onnx {
    private static final int WIDTH = 16;
    /** ONNX's number for 32-bit floating point. */
    private static final int FLOAT = 1;

    private final OrtEnvironment environment;
    private final OrtSession session;
    private final FloatBuffer features =
            ByteBuffer.allocateDirect(4 * WIDTH).order(ByteOrder.nativeOrder()).asFloatBuffer();
    private float next;

    private Onnx() throws OrtException {
        environment = OrtEnvironment.getEnvironment();
        OrtSession.SessionOptions options = new OrtSession.SessionOptions();
        // All the work is done by the thread that asks for it.
        options.setIntraOpNumThreads(1);
        options.setInterOpNumThreads(1);
        session = environment.createSession(model(), options);
    }

    public static void main(String[] args) throws Exception {
        Program.run(1, () -> new Onnx()::operate);
    }

    /** Scores one request. */
    private void operate() throws OrtException {
        next = (next + 1) % 1000;
        features.put(WIDTH - 1, next);
        try (OnnxTensor tensor = OnnxTensor.createTensor(environment, features, new long[] {1, WIDTH});
                OrtSession.Result result = session.run(Map.of("x", tensor))) {
            float[][] scores = (float[][]) result.get(0).getValue();
            if (scores[0][WIDTH - 1] != 2 * next) {
                throw new IllegalStateException("twice " + next + " is not " + scores[0][WIDTH - 1]);
            }
        }
    }

    /** {@code y = relu(x * w)}, where {@code w} doubles: a {@code ModelProto}, by the numbers of its fields. */
    private static byte[] model() {
        ByteBuffer weights = ByteBuffer.allocate(4 * WIDTH * WIDTH).order(ByteOrder.LITTLE_ENDIAN);
        for (int i = 0; i < WIDTH; i++) {
            weights.putFloat(4 * i * (WIDTH + 1), 2);
        }
        byte[] tensor = join(
                number(1, WIDTH), number(1, WIDTH), number(2, FLOAT), text(8, "w"), field(9, weights.array()));
        byte[] graph = join(
                field(1, node("MatMul", "product", "x", "w")),
                field(1, node("Relu", "y", "product")),
                text(2, "double"),
                field(5, tensor),
                field(11, row("x")),
                field(12, row("y")));
        byte[] operators = join(text(1, ""), number(2, 13));
        return join(number(1, 7), field(7, graph), field(8, operators));
    }

    private static byte[] node(String operator, String output, String... inputs) {
        byte[] node = {};
        for (String input : inputs) {
            node = join(node, text(1, input));
        }
        return join(node, text(2, output), text(4, operator));
    }

    /** A value of one row. */
    private static byte[] row(String name) {
        byte[] shape = join(field(1, number(1, 1)), field(1, number(1, WIDTH)));
        return join(text(1, name), field(2, field(1, join(number(1, FLOAT), field(2, shape)))));
    }

    private static byte[] text(int field, String text) {
        return field(field, text.getBytes(StandardCharsets.UTF_8));
    }

    private static byte[] field(int field, byte[] content) {
        return join(varint(field << 3 | 2), varint(content.length), content);
    }

    private static byte[] number(int field, int number) {
        return join(varint(field << 3), varint(number));
    }

    private static byte[] varint(int number) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (; number >= 0x80; number >>>= 7) {
            out.write(number & 0x7f | 0x80);
        }
        out.write(number);
        return out.toByteArray();
    }

    private static byte[] join(byte[]... parts) {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        for (byte[] part : parts) {
            out.write(part, 0, part.length);
        }
        return out.toByteArray();
    }
}
