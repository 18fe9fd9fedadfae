import java.nio.ByteBuffer;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Messages between direct buffers, by JNI. Meanwhile a thread makes garbage and dereferences null: the virtual machine
 * notices that by SIGSEGV, whose handler it shares with the library.
 */
public final class Exchange {
    private static final int LENGTH = 100_000;
    private static final int ROUNDS = 100;
    /** Bytes of garbage that are alive at a time. */
    private static final int GARBAGE = 1 << 20;

    static {
        System.loadLibrary("exchange");
    }

    /** Opens the device, and registers both buffers with a queue pair that is connected to itself. */
    private static native void open(ByteBuffer from, ByteBuffer to);

    /** Sends the first bytes of one buffer to the other. Returns the status of the completion that failed, or 0. */
    private static native int send(int length);

    private static native void close();

    /** Returns the length of a text, without a look whether there is one. */
    private static int length(String text) {
        return text.length();
    }

    /** Makes garbage, and counts caught exceptions, until it is interrupted. */
    private static void disturb(AtomicLong caught) {
        byte[][] garbage = new byte[16][];
        for (int number = 0; !Thread.interrupted(); number++) {
            garbage[number % garbage.length] = new byte[GARBAGE / garbage.length];
            try {
                length(number % 2 == 0 ? null : "text");
            } catch (NullPointerException expected) {
                caught.incrementAndGet();
            }
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        ByteBuffer from = ByteBuffer.allocateDirect(LENGTH);
        ByteBuffer to = ByteBuffer.allocateDirect(LENGTH);
        AtomicLong caught = new AtomicLong();
        Thread disturbing = new Thread(() -> disturb(caught));
        open(from, to);
        disturbing.start();
        Random random = new Random(7);
        for (int number = 0; number < ROUNDS; number++) {
            byte[] data = new byte[1 + random.nextInt(LENGTH)];
            random.nextBytes(data);
            from.clear().put(data);
            int status = send(data.length);
            if (status != 0) {
                throw new IllegalStateException("message " + number + ": status " + status);
            }
            byte[] arrived = new byte[data.length];
            to.clear().get(arrived);
            if (!java.util.Arrays.equals(data, arrived)) {
                throw new IllegalStateException("message " + number + " is wrong");
            }
        }
        disturbing.interrupt();
        disturbing.join();
        close();
        if (caught.get() == 0) {
            throw new IllegalStateException("no exception was caught");
        }
        System.out.println("all data is right");
    }
}
