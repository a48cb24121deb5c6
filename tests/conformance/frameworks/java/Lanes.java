import java.util.ArrayList;
import java.util.List;

/** What the senders in Java share: lanes of sends, and lines as python_sender.py's. */
final class Lanes {
    interface Send {
        void send(String id) throws Exception;
    }

    private static volatile boolean ending;

    private Lanes() {
    }

    /** Send until the end of standard input; args: ENTITY PREFIX LANES PAUSE_MS. */
    static void run(String[] args, Send send) throws Exception {
        List<Thread> lanes = new ArrayList<>();
        for (int lane = 0; lane < Integer.parseInt(args[2]); lane++) {
            String name = args[1] + "-" + lane;
            Thread thread = new Thread(() -> send(name, Long.parseLong(args[3]), send));
            thread.start();
            lanes.add(thread);
        }
        while (System.in.read() >= 0) {
            // only the end counts
        }
        ending = true;
        for (Thread thread : lanes) {
            thread.join();
        }
        say("ended");
        System.exit(0);
    }

    private static void send(String name, long pause, Send send) {
        for (int number = 0; !ending; number++) {
            String id = name + "-" + number;
            long begun = System.nanoTime();
            say("begun\t" + id);
            try {
                send.send(id);
                say("accepted\t" + id + "\t" + (System.nanoTime() - begun) / 1e6);
            } catch (Exception error) {
                Throwable cause = error;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                String text = (error + ", by " + cause).replaceAll("\\s+", " ");
                say("failed\t" + id + "\t" + text.substring(0, Math.min(300, text.length())));
            }
            try {
                Thread.sleep(pause);
            } catch (InterruptedException error) {
                return;
            }
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
