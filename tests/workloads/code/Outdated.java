import java.util.concurrent.locks.LockSupport;

/**
 * A thread that waits in methods whose compiled code has become invalid meanwhile: another class
 * has come, whose method was thought to have one form. It is told, then "ready".
 */
public class Outdated {
    static class Price {
        int with(int tax) {
            return tax + 1;
        }
    }

    static class Reduced extends Price {
        @Override
        int with(int tax) {
            return tax;
        }
    }

    static volatile boolean blocks, isThere;
    static volatile int sink;

    static void waits() {
        while (blocks) {
            isThere = true;
            LockSupport.park();
        }
    }

    static int plantedSum(Price price, int tax) {
        waits();
        return price.with(tax);
    }

    static int plantedTotal(Price price, int count) {
        int total = 0;
        for (int i = 0; i < count; i++) total += plantedSum(price, i);
        return total;
    }

    static void loop(Price price) {
        while (true) sink += plantedTotal(price, 20);
    }

    public static void main(String[] arguments) throws Exception {
        Price price = new Price();
        for (int i = Integer.parseInt(arguments[0]); i > 0; i--) sink += plantedTotal(price, 20);
        Thread thread = new Thread(() -> loop(price), "p-outdated");
        thread.setDaemon(true);
        thread.start();
        // Its loop is compiled by then.
        long until = System.nanoTime() + 500_000_000;
        while (System.nanoTime() < until) Thread.yield();
        blocks = true;
        while (!isThere || thread.getState() != Thread.State.WAITING) Thread.yield();
        sink += new Reduced().with(1);
        StringBuilder told = new StringBuilder(thread.getName());
        for (StackTraceElement each : thread.getStackTrace())
            told.append(' ').append(each.getClassName()).append('.')
                    .append(each.getMethodName()).append('(')
                    .append(each.getFileName()).append(')');
        System.out.println(told);
        System.out.println("ready");
        System.out.flush();
        System.in.read();
    }
}
