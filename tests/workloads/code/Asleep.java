import java.util.concurrent.locks.ReentrantLock;

/** Waits in a known method, called from another: lock, monitor or sleep; "waits" is said first. */
public class Asleep {
    static final ReentrantLock LOCK = new ReentrantLock();
    static volatile int sink;

    static void plantedEntry() {
        LOCK.lock();
        LOCK.unlock();
    }

    static synchronized void plantedDoor() {
        sink++;
    }

    static void plantedNap() throws InterruptedException {
        Thread.sleep(20);
    }

    static void plantedHandler(String how) throws InterruptedException {
        if (how.equals("lock")) plantedEntry();
        else if (how.equals("monitor")) plantedDoor();
        else plantedNap();
    }

    static void holds(String how) {
        long until = System.nanoTime() + 20_000_000;
        if (how.equals("lock")) LOCK.lock();
        if (how.equals("monitor")) held(until);
        else while (System.nanoTime() < until) sink++;
        if (how.equals("lock")) LOCK.unlock();
        long later = System.nanoTime() + 1_000_000;
        while (System.nanoTime() < later) sink++;
    }

    static synchronized void held(long until) {
        while (System.nanoTime() < until) sink++;
    }

    public static void main(String[] arguments) {
        String how = arguments[0];
        if (!how.equals("sleep")) {
            Thread holder = new Thread(() -> { while (true) holds(how); }, "holds");
            holder.setDaemon(true);
            holder.start();
        }
        System.out.println("waits");
        System.out.flush();
        try {
            while (true) plantedHandler(how);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
