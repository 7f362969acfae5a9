package com.acme.shop;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Asks two suppliers at a time for their offers, one of which is slow: the program in which docs/tree.md links tasks with who submits them.
 *
 * <pre>
 * javac -d /tmp/shop docs/examples/Offers.java
 * java -cp /tmp/shop com.acme.shop.Offers
 * </pre>
 */
public final class Offers {
    private final AtomicInteger threads = new AtomicInteger();
    private final ExecutorService suppliers =
            Executors.newFixedThreadPool(2, task -> new Thread(task, "supplier-" + threads.incrementAndGet()));

    public static void main(String[] args) throws Exception {
        Offers offers = new Offers();
        for (int article = 0; ; article++) {
            offers.best(article);
            Thread.sleep(100);
        }
    }

    /** The lowest price. */
    int best(int article) throws Exception {
        CompletableFuture<Integer> near = CompletableFuture.supplyAsync(() -> ask(article, 2), suppliers);
        Future<Integer> far = suppliers.submit(() -> ask(article, 9));
        return Math.min(near.join(), far.get());
    }

    /** What a supplier says, who is so far away. */
    private int ask(int article, int distance) {
        try {
            Thread.sleep(distance);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
        return article * 7 % (100 + distance);
    }
}
