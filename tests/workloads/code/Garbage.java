// Keeps a heap nearly full, and makes garbage: for a request each, or alone without a port.
import com.sun.net.httpserver.HttpServer;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;

public class Garbage {
    static final Map<Integer, Object> KEPT = new HashMap<>();
    static volatile Object last;

    // Until so much of the heap is left, in MB.
    static void fill(long left) {
        Runtime all = Runtime.getRuntime();
        for (int i = 0; ; i++) {
            if (i % 10000 == 0 && all.maxMemory() - all.totalMemory() + all.freeMemory() < left << 20) {
                return;
            }
            KEPT.put(i, new long[2]);
        }
    }

    static void litter() {
        for (int i = 0; i < 200; i++) {
            last = new byte[8192];
        }
    }

    public static void main(String[] arguments) throws Exception {
        fill(Long.parseLong(arguments[0]));
        HttpServer server = HttpServer.create(
            new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 64);
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            litter();
            exchange.sendResponseHeaders(200, 2);
            exchange.getResponseBody().write(new byte[2]);
            exchange.close();
        });
        server.start();
        System.out.println(server.getAddress().getPort());
    }
}
