package conformance;

import com.azure.core.amqp.AmqpRetryMode;
import com.azure.core.amqp.AmqpRetryOptions;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import com.azure.messaging.servicebus.models.SubQueue;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A namespace of the sandbox for one check: the queue orders, the session queue payments, the topic audit with its
 * subscription all. Clients made here are closed with it.
 */
final class Namespace implements AutoCloseable {
    static final Duration PATIENCE = Duration.ofSeconds(10);
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final URI CONTROL = URI.create(System.getenv("SANDBOX_CONTROL"));

    private static final Map<String, String> SENDERS = lines("SANDBOX_SENDERS");
    private static final Map<String, String> CLIENTS = lines("SANDBOX_CLIENTS");

    final String name;
    final String connectionString;
    private final Deque<AutoCloseable> open = new ArrayDeque<>();

    Namespace(String name, String connectionString) {
        this.name = name;
        this.connectionString = CLIENTS.getOrDefault(name, connectionString);
    }

    /** Connection strings of gateways by the names of their namespaces; without gateways there are none. */
    private static Map<String, String> lines(String variable) {
        Map<String, String> found = new HashMap<>();
        String text = System.getenv().getOrDefault(variable, "");
        text.lines().forEach(each -> found.put(each.split("=", 2)[0], each.split("=", 2)[1]));
        return found;
    }

    /** Returns a builder whose clients retry soon, up to {@code retries} times. */
    ServiceBusClientBuilder builder(int retries) {
        AmqpRetryOptions options = new AmqpRetryOptions().setMode(AmqpRetryMode.FIXED).setMaxRetries(retries)
            .setDelay(Duration.ofMillis(100)).setTryTimeout(retries == 0 ? PATIENCE : PATIENCE.dividedBy(2));
        return new ServiceBusClientBuilder().connectionString(connectionString).retryOptions(options);
    }

    ServiceBusClientBuilder builder() {
        return builder(0);
    }

    /** Lets a builder's senders alone go through the gateway, if there is one. */
    private ServiceBusClientBuilder sending(ServiceBusClientBuilder builder) {
        return builder.connectionString(SENDERS.getOrDefault(name, connectionString));
    }

    <T extends AutoCloseable> T closing(T client) {
        open.push(client);
        return client;
    }

    ServiceBusSenderClient sender(String queue) {
        return closing(sending(builder()).sender().queueName(queue).buildClient());
    }

    ServiceBusSenderClient topicSender() {
        return closing(sending(builder()).sender().topicName("audit").buildClient());
    }

    ServiceBusReceiverClient receiver() {
        return closing(builder().receiver().queueName("orders").buildClient());
    }

    ServiceBusReceiverClient deadLetterReceiver() {
        return closing(builder().receiver().queueName("orders").subQueue(SubQueue.DEAD_LETTER_QUEUE).buildClient());
    }

    ServiceBusReceiverClient deletingReceiver() {
        return closing(builder().receiver().queueName("orders").receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE)
            .buildClient());
    }

    ServiceBusReceiverClient subscriptionReceiver() {
        return closing(builder().receiver().topicName("audit").subscriptionName("all").buildClient());
    }

    ServiceBusReceiverClient session(String id) {
        return closing(closing(builder().sessionReceiver().queueName("payments").buildClient()).acceptSession(id));
    }

    /** Sends one message to orders, and receives it with {@code receiver}. */
    ServiceBusReceivedMessage sendAndReceive(ServiceBusMessage message, ServiceBusReceiverClient receiver) {
        sender("orders").sendMessage(message);
        return receiveOne(receiver);
    }

    static ServiceBusReceivedMessage receiveOne(ServiceBusReceiverClient receiver) {
        return receive(receiver, 1).get(0);
    }

    static List<ServiceBusReceivedMessage> receive(ServiceBusReceiverClient receiver, int count) {
        List<ServiceBusReceivedMessage> received = new ArrayList<>();
        while (received.size() < count) {
            int before = received.size();
            receiver.receiveMessages(count - before, PATIENCE).forEach(received::add);
            Expect.isTrue(received.size() > before, before + " of " + count + " messages were received");
        }
        return received;
    }

    static List<String> bodies(Iterable<ServiceBusReceivedMessage> messages) {
        List<String> bodies = new ArrayList<>();
        messages.forEach(each -> bodies.add(each.getBody().toString()));
        return bodies;
    }

    /** Fails if a message, in whatever state, is left in the queue orders. */
    void expectEmpty() {
        Expect.equal(List.of(), bodies(receiver().peekMessages(10)));
    }

    /** Waits until the queue orders is empty: processors settle after the check's own code has run. */
    void awaitEmpty() throws InterruptedException {
        ServiceBusReceiverClient receiver = receiver();
        for (int turn = 0; turn < 50 && receiver.peekMessage() != null; turn++) {
            Thread.sleep(100);
        }
        expectEmpty();
    }

    /** Begins a fault of this namespace; {@code terms} are names and values. Closing ends it, if it has not ended. */
    AutoCloseable fault(String kind, Object... terms) throws Exception {
        Map<String, Object> order = new HashMap<>(Map.of("namespace", name, "fault", kind));
        for (int at = 0; at < terms.length; at += 2) {
            order.put((String) terms[at], terms[at + 1]);
        }
        String answer = HTTP.send(request("/faults").header("Content-Type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString(Json.of(order))).build(), BodyHandlers.ofString()).body();
        Expect.isTrue(answer.contains("\"id\""), answer);
        String id = answer.replaceAll(".*\"id\": *\"([^\"]*)\".*", "$1");
        return () -> HTTP.send(request("/faults/" + id).DELETE().build(), BodyHandlers.discarding());
    }

    private static HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create(CONTROL + path)).timeout(PATIENCE);
    }

    @Override
    public void close() throws Exception {
        while (!open.isEmpty()) {
            open.pop().close();
        }
    }
}
