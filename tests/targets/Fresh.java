package targets;

import java.util.function.IntConsumer;
import java.util.function.IntUnaryOperator;

/** Loaded again and again, each time by another loader that is soon forgotten; see {@code StackShapes.fresh}. */
public final class Fresh implements IntConsumer {
    private final IntUnaryOperator park;

    public Fresh(IntUnaryOperator park) {
        this.park = park;
    }

    @Override
    public void accept(int slot) {
        IntUnaryOperator deeper = x -> deeper(x, 3);
        deeper.applyAsInt(slot);
    }

    private int deeper(int slot, int depth) {
        return depth == 0 ? park.applyAsInt(slot) : deeper(slot, depth - 1) + 1;
    }
}
