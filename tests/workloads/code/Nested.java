import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Threads that wait in known methods, and one that computes in them. When all are there each is
 * told with its methods, the innermost first, then "ready".
 */
public class Nested {
    interface Ends {
        void end() throws Exception;
    }

    static final long BEGAN_NS = System.nanoTime();
    static volatile long sink;
    static final Object HELD = new Object();
    static final Map<String, Thread> STARTED = new LinkedHashMap<>();

    static void outer(Ends ends) throws Exception {
        middle(ends, 3);
    }

    static void middle(Ends ends, int depth) throws Exception {
        if (depth > 0) middle(ends, depth - 1);
        else new Nested().inner(ends);
    }

    void inner(Ends ends) throws Exception {
        ends.end();
    }

    static long plantedMix(long value, long step) {
        return value * 1664525 + Long.rotateLeft(value, (int) step & 7);
    }

    static long plantedDigest(int rounds) {
        long value = sink;
        for (int i = 0; i < rounds; i++) value = plantedMix(value, i);
        return value;
    }

    static long plantedCopies(int size) {
        int[] copy = new int[size];
        System.arraycopy(copy, 0, copy, 1, size - 1);
        return copy[size / 2];
    }

    static void plantedHandler() {
        sink = plantedDigest(1000) + plantedCopies(300);
    }

    static void spin() {
        while (true) plantedHandler();
    }

    static void start(String name, Ends ends) {
        Thread thread =
                new Thread(
                        () -> {
                            try {
                                outer(ends);
                            } catch (Exception error) {
                                throw new IllegalStateException(error);
                            }
                        },
                        name);
        thread.setDaemon(true);
        thread.start();
        STARTED.put(name, thread);
    }

    /** Its methods, as soon as it waits in one of these, or computes. */
    static StackTraceElement[] there(Thread thread) {
        String ends = "sleep\\w*|(park|wait|read|poll|socketRead)0?|enters";
        while (true) {
            StackTraceElement[] trace = thread.getStackTrace();
            boolean waits = thread.getState() != Thread.State.RUNNABLE;
            for (StackTraceElement each : trace) if (each.getMethodName().equals("spin")) return trace;
            if (trace.length > 0 && trace[0].getMethodName().matches(ends))
                if (waits || trace[0].isNativeMethod()) return trace;
            if (System.nanoTime() - BEGAN_NS > 60_000_000_000L) System.exit(1);
            Thread.yield();
        }
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = Integer.parseInt(arguments[0]); i > 0; i--) {
            outer(() -> sink++);
            plantedHandler();
        }
        ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
        Socket reads = new Socket(listener.getInetAddress(), listener.getLocalPort());
        ReentrantLock lock = new ReentrantLock();
        lock.lock();
        synchronized (HELD) {
            start("p-sleep", () -> Thread.sleep(1000000));
            start("p-park", () -> LockSupport.park());
            start("p-lock", () -> lock.lock());
            start("p-wait", () -> waits(new Object()));
            start("p-enter", () -> enters());
            start("p-read", () -> reads.getInputStream().read());
            start("p-spin", () -> spin());
            for (Thread thread : STARTED.values()) {
                StringBuilder told = new StringBuilder(thread.getName());
                for (StackTraceElement each : there(thread))
                    told.append(' ').append(each.getClassName()).append('.')
                            .append(each.getMethodName()).append('(')
                            .append(each.getFileName()).append(')');
                System.out.println(told);
            }
            System.out.println("ready");
            System.out.flush();
            System.in.read();
        }
    }

    static void waits(Object object) throws Exception {
        synchronized (object) {
            object.wait();
        }
    }

    static void enters() {
        synchronized (HELD) {
            sink++;
        }
    }
}
