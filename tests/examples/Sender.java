import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import java.util.ArrayList;
import java.util.List;

/**
 * A sender in Java that knows of no gateway, pairing or outage: azure-messaging-servicebus with all its defaults.
 *
 * <p>java Sender.java ENTITY PREFIX LANES PAUSE_MS, with the connection string in SENDER_CONNECTION_STRING; the end of
 * standard input ends it. python_sender.py tells what it prints.
 */
public final class Sender {
    private static volatile boolean ending;
    private static ServiceBusSenderClient sender;
    private static String prefix;
    private static long pause;

    public static void main(String[] arguments) throws Exception {
        sender = new ServiceBusClientBuilder().connectionString(System.getenv("SENDER_CONNECTION_STRING"))
            .sender().queueName(arguments[0]).buildClient();
        prefix = arguments[1];
        pause = Long.parseLong(arguments[3]);
        List<Thread> lanes = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
            int lane = number;
            lanes.add(new Thread(() -> run(lane)));
        }
        lanes.forEach(Thread::start);
        while (System.in.read() >= 0) {
            continue;
        }
        ending = true;
        for (Thread lane : lanes) {
            lane.join();
        }
        say("ended");
        System.exit(0);
    }

    private static void run(int lane) {
        for (int number = 0; !ending; number++) {
            String id = prefix + "-" + lane + "-" + number;
            send(number % 10 == 9 ? List.of(id + "a", id + "b", id + "c") : List.of(id));
            try {
                Thread.sleep(pause);
            } catch (InterruptedException end) {
                return;
            }
        }
    }

    private static void send(List<String> ids) {
        ids.forEach(id -> say("begun", id));
        long begun = System.nanoTime();
        List<ServiceBusMessage> messages = ids.stream()
            .map(id -> new ServiceBusMessage("x".repeat(1000)).setMessageId(id).setSubject(prefix)).toList();
        try {
            if (messages.size() == 1) {
                sender.sendMessage(messages.get(0));
            } else {
                sender.sendMessages(messages);
            }
            String took = String.valueOf((System.nanoTime() - begun) / 100_000 / 10.0);
            ids.forEach(id -> say("accepted", id, took));
        } catch (RuntimeException error) {
            String text = (error.getClass().getSimpleName() + ": " + error.getMessage()).replaceAll("\\s+", " ");
            ids.forEach(id -> say("failed", id, text.substring(0, Math.min(300, text.length()))));
        }
    }

    private static synchronized void say(String... words) {
        System.out.println(String.join("\t", words));
        System.out.flush();
    }
}
