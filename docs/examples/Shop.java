package com.acme.shop;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.DeflaterOutputStream;

/**
 * A small shop that answers a hundred requests a second, a few of them slowly: the program that docs/tree.md looks into.
 *
 * <pre>
 * javac -d /tmp/shop docs/examples/Shop.java
 * java -cp /tmp/shop com.acme.shop.Shop
 * </pre>
 */
public final class Shop {
    private final Orders orders = new Orders();

    public static void main(String[] args) throws InterruptedException {
        Shop shop = new Shop();
        for (int number = 0; number < 2; number++) {
            new Thread(() -> shop.serve(), "shop-" + number).start();
        }
    }

    private void serve() {
        Random random = new Random(1);
        while (true) {
            answer(random.nextInt(1_000));
            pause(20);
        }
    }

    /** One request: the page of an order, or one that says that there is none. */
    byte[] answer(int number) {
        Order order;
        try {
            order = orders.load(number);
        } catch (IOException missing) {
            order = new Order(number, 0);
        }
        return page(order);
    }

    private byte[] page(Order order) {
        String lines = IntStream.range(0, order.lines).mapToObj(line -> order.line(line)).collect(Collectors.joining("\n"));
        return pack("order " + order.number + "\n" + lines);
    }

    private byte[] pack(String page) {
        ByteArrayOutputStream packed = new ByteArrayOutputStream();
        try (DeflaterOutputStream out = new DeflaterOutputStream(packed)) {
            out.write(page.getBytes(StandardCharsets.UTF_8));
        } catch (IOException failed) {
            throw new UncheckedIOException(failed);
        }
        return packed.toByteArray();
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }
}

/** What was ordered. */
final class Order {
    final int number;
    final int lines;

    Order(int number, int lines) {
        this.number = number;
        this.lines = lines;
    }

    String line(int line) {
        return "article " + (number * 31 + line) + " costs " + price(line % 20);
    }

    private static int price(int article) {
        int price = 1;
        for (int part = 1; part <= article; part++) {
            price += part * part % 7;
        }
        return price;
    }
}

/** Where orders are. */
final class Orders {
    /** One order in thirty cannot be found, and one in ten is large. */
    Order load(int number) throws IOException {
        check(number);
        return new Order(number, number % 10 == 7 ? 400 : 40);
    }

    private void check(int number) throws IOException {
        if (number % 30 == 0) {
            throw new IOException("there is no order " + number);
        }
    }
}
