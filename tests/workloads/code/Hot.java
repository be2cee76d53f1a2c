/** Burns CPU in a known method, called from another; "spins" is said first. */
public class Hot {
    static volatile int sink;

    static int plantedDigest(int rounds) {
        int value = sink;
        for (int i = 0; i < rounds; i++) value = value * 1664525 + 1013904223;
        return value;
    }

    static void plantedHandler() {
        sink = plantedDigest(3000000);
    }

    public static void main(String[] arguments) {
        for (int i = 0; i < 300; i++) plantedHandler();
        System.out.println("spins");
        System.out.flush();
        while (true) plantedHandler();
    }
}
