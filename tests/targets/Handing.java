package targets;

import java.lang.reflect.Method;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RecursiveTask;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Hands tasks to other threads, in each way that the JDK has. Whose task it was can be counted: {@code submit} marks as often as {@code work}
 * does what it has submitted.
 */
public final class Handing {
    private Handing() {}

    /** Its threads end, and are started by whoever submits something. */
    private static final ThreadPoolExecutor POOL =
            new ThreadPoolExecutor(3, 3, 1, TimeUnit.MILLISECONDS, new LinkedBlockingQueue<>());
    private static final ScheduledExecutorService LATER = Executors.newScheduledThreadPool(2);
    private static final ForkJoinPool FORKING = new ForkJoinPool(2);
    private static volatile ExecutorService perTask;
    private static volatile Method startVirtual;
    static volatile int sink;

    /** What objects do that are the same each time. */
    private static final Queue<Integer> TIMES = new ConcurrentLinkedQueue<>();

    private static final Runnable REPEATED = new Runnable() {
        @Override
        public void run() {
            work(TIMES.remove());
        }
    };

    private static final class Forked extends RecursiveTask<Integer> {
        private static final long serialVersionUID = 1;
        private final int times;
        /** Who joins a task may run it. */
        final transient CompletableFuture<Void> ran = new CompletableFuture<>();

        Forked(int times) {
            this.times = times;
        }

        @Override
        protected Integer compute() {
            work(times);
            ran.complete(null);
            return times;
        }
    }

    private static final class Own extends Thread {
        private final int times;

        Own(int times) {
            this.times = times;
        }

        @Override
        public void run() {
            work(times);
        }
    }

    /** What is submitted. */
    static int work(int times) {
        for (int i = 0; i < times; i++) {
            mark();
        }
        return times;
    }

    static void mark() {
        sink++;
    }

    /** Submits it, in one of the ways, and waits for its end but where it is the same object each time. */
    static void submit(String way, int times) throws Exception {
        for (int i = 0; i < times; i++) {
            mark();
        }
        switch (way) {
            case "runnable":
                POOL.submit((Runnable) () -> work(times)).get();
                break;
            case "callable":
                POOL.submit(() -> work(times)).get();
                break;
            case "all":
                Callable<Integer> task = () -> work(times);
                POOL.invokeAll(List.of(task)).get(0).get();
                break;
            case "scheduled":
                LATER.schedule(() -> work(times), 1, TimeUnit.MILLISECONDS).get();
                break;
            case "supplied":
                CompletableFuture.supplyAsync(() -> work(times), POOL).join();
                break;
            case "run":
                CompletableFuture.runAsync(() -> work(times), FORKING).join();
                break;
            case "stage":
                CompletableFuture.completedFuture(times).thenApplyAsync(Handing::work, POOL).join();
                break;
            case "composed":
                CompletableFuture.supplyAsync(() -> 1, LATER).thenAcceptAsync(one -> work(times), FORKING).join();
                break;
            case "forkjoin":
                FORKING.submit(() -> work(times)).get();
                break;
            case "forked":
                Forked forked = new Forked(times);
                forked.fork();
                forked.ran.join();
                break;
            case "thread":
                joined(new Thread(() -> work(times)));
                break;
            case "own":
                joined(new Own(times));
                break;
            case "virtual":
                ((Thread) startVirtual.invoke(null, (Runnable) () -> work(times))).join();
                break;
            case "pertask":
                perTask.submit(() -> work(times)).get();
                break;
            case "lambda":
                CompletableFuture<Void> done = new CompletableFuture<>();
                POOL.execute(() -> {
                    work(times);
                    done.complete(null);
                });
                done.join();
                break;
            case "executed":
                TIMES.add(times);
                POOL.execute(REPEATED);
                break;
            case "constant":
                TIMES.add(times);
                POOL.execute(() -> work(TIMES.remove()));
                break;
            default:
                throw new IllegalArgumentException(way);
        }
    }

    private static void joined(Thread thread) throws InterruptedException {
        thread.start();
        thread.join();
    }

    /** Submits what {@code submit} does, but nobody follows this. */
    private static void unseen(int times) throws Exception {
        POOL.submit(() -> work(times)).get();
        joined(new Thread(() -> work(times)));
    }

    /** So many threads submit one after another so many times in each way. */
    private static void run(int threads, int rounds, String[] ways) throws Exception {
        Thread[] all = new Thread[threads];
        for (int thread = 0; thread < threads; thread++) {
            int number = thread;
            all[thread] = new Thread(() -> {
                int times = number;
                for (int round = 0; round < rounds; round++) {
                    for (String way : ways) {
                        obey(way, times);
                        times += threads;
                    }
                }
            });
            all[thread].start();
        }
        for (Thread thread : all) {
            thread.join();
        }
    }

    private static void obey(String way, int times) {
        try {
            if (way.equals("unseen")) {
                unseen(times);
            } else {
                submit(way, times);
            }
        } catch (Exception failed) {
            throw new IllegalStateException(failed);
        }
    }

    public static void main(String[] args) throws Exception {
        POOL.allowCoreThreadTimeOut(true);
        String ways = "runnable,callable,all,scheduled,supplied,run,stage,composed,forkjoin,forked,thread,own,lambda,executed,constant,unseen";
        if (Runtime.version().feature() >= 21) {
            startVirtual = Thread.class.getMethod("startVirtualThread", Runnable.class);
            perTask = (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
            ways += ",virtual,pertask";
        }
        // All classes are loaded when it is ready.
        run(2, 2, ways.split(","));
        Target.serve(Map.of("hand", (a, out) -> {
            run(Integer.parseInt(a[0]), Integer.parseInt(a[1]), a[2].split(","));
        }));
    }
}
