package targets;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;

/** Runs rounds of calls on many threads that start together, and sums what each of them counted. */
final class Crowd {
    /** What one thread counted itself, by method. */
    static final class Tally {
        private final long[] calls = new long[Native.values().length];

        void made(Native method) {
            made(method, 1);
        }

        void made(Native method, long times) {
            calls[method.ordinal()] += times;
        }
    }

    /** One round: some calls, each told to the tally after it was made. */
    interface Round {
        void run(Tally tally);
    }

    private Crowd() {}

    /** Calls made, by ordinal of {@link Native}. */
    static long[] run(int threads, int rounds, Round round) throws InterruptedException, ExecutionException {
        CountDownLatch start = new CountDownLatch(1);
        List<FutureTask<Tally>> tasks = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            FutureTask<Tally> task = new FutureTask<>(() -> {
                Tally tally = new Tally();
                start.await();
                for (int r = 0; r < rounds; r++) {
                    round.run(tally);
                }
                return tally;
            });
            tasks.add(task);
            new Thread(task, "caller-" + i).start();
        }
        start.countDown();
        long[] sum = new long[Native.values().length];
        for (FutureTask<Tally> task : tasks) {
            Tally tally = task.get();
            for (int i = 0; i < sum.length; i++) {
                sum[i] += tally.calls[i];
            }
        }
        return sum;
    }
}
