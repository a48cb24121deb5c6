package conformance;

import static conformance.Namespace.PATIENCE;
import static conformance.Namespace.receiveOne;

import com.azure.core.amqp.AmqpTransportType;
import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.exception.HttpResponseException;
import com.azure.core.http.HttpClient;
import com.azure.core.util.UrlBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverAsyncClient;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderAsyncClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.QueueProperties;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import java.net.MalformedURLException;
import java.net.URI;
import java.time.Duration;
import java.util.List;
import reactor.core.publisher.Flux;

/** Transports, keys, missing entities, and administration. */
final class ConnectionChecks {
    static void speaksAmqpOverTls(Namespace at) {
        expectExchange(at, AmqpTransportType.AMQP);
    }

    static void speaksAmqpOverWebSockets(Namespace at) {
        expectExchange(at, AmqpTransportType.AMQP_WEB_SOCKETS);
    }

    static void sharesOneConnection(Namespace at) {
        ServiceBusClientBuilder shared = at.builder();
        ServiceBusSenderClient sender = at.closing(shared.sender().queueName("orders").buildClient());
        ServiceBusReceiverClient receiver = at.closing(shared.receiver().queueName("orders").buildClient());
        sender.sendMessage(new ServiceBusMessage("shared"));
        receiver.complete(receiveOne(receiver));
        at.expectEmpty();
    }

    static void refusesAWrongKey(Namespace at) {
        ServiceBusSenderClient sender = at.closing(at.builder().connectionString(withWrongKey(at)).sender()
            .queueName("orders").buildClient());
        Expect.refused(AmqpErrorCondition.UNAUTHORIZED_ACCESS, () -> sender.sendMessage(new ServiceBusMessage("x")));
    }

    static void findsNoMissingQueue(Namespace at) {
        Expect.refused(AmqpErrorCondition.NOT_FOUND,
            () -> at.sender("nowhere").sendMessage(new ServiceBusMessage("x")));
    }

    static void asyncClientsSendAndReceive(Namespace at) {
        ServiceBusSenderAsyncClient sender = at.closing(at.builder().sender().queueName("orders").buildAsyncClient());
        ServiceBusReceiverAsyncClient receiver = at.closing(at.builder().receiver().queueName("orders")
            .prefetchCount(20).disableAutoComplete().buildAsyncClient());
        Flux.range(0, 50).flatMap(each -> sender.sendMessage(new ServiceBusMessage("m" + each))).blockLast(PATIENCE);
        long completed = receiver.receiveMessages()
            .concatMap(each -> receiver.complete(each).thenReturn(each.getSequenceNumber())).take(50).distinct().count()
            .block(PATIENCE);
        Expect.equal(50L, completed);
        at.expectEmpty();
    }

    static void administratesQueues(Namespace at) {
        ServiceBusAdministrationClient administration = administration(at.connectionString);
        QueueProperties made = administration.createQueue("made", new CreateQueueOptions()
            .setLockDuration(Duration.ofSeconds(15)).setMaxDeliveryCount(4));
        Expect.equal(Duration.ofSeconds(15), made.getLockDuration());
        Expect.equal(4, administration.getQueue("made").getMaxDeliveryCount());
        Expect.equal(5, administration.updateQueue(made.setMaxDeliveryCount(5)).getMaxDeliveryCount());
        List<String> names = administration.listQueues().stream().map(QueueProperties::getName).toList();
        Expect.equal(List.of("brief", "made", "orders", "payments", "unique"), names);
        administration.deleteQueue("made");
        Expect.isTrue(!administration.getQueueExists("made"), "the queue still exists");
    }

    static void administratesTopics(Namespace at) {
        ServiceBusAdministrationClient administration = administration(at.connectionString);
        administration.createTopic("made");
        administration.createSubscription("made", "part");
        administration.createRule("made", "size", "part", new CreateRuleOptions(new SqlRuleFilter("size > 10")));
        Expect.equal(2L, administration.listRules("made", "part").stream().count());
        Expect.equal("size > 10", administration.getRule("made", "part", "size").getFilter().toString()
            .replace("SqlRuleFilter: ", ""));
        administration.deleteTopic("made");
        Expect.isTrue(!administration.getTopicExists("made"), "the topic still exists");
    }

    static void countsMessages(Namespace at) {
        at.sender("orders").sendMessages(List.of(new ServiceBusMessage("a"), new ServiceBusMessage("b")));
        ServiceBusReceiverClient receiver = at.receiver();
        receiver.deadLetter(receiveOne(receiver));
        var counts = administration(at.connectionString).getQueueRuntimeProperties("orders");
        Expect.equal(1, counts.getActiveMessageCount());
        Expect.equal(1, counts.getDeadLetterMessageCount());
    }

    static void refusesAnAdministratorWithAWrongKey(Namespace at) {
        HttpResponseException error = Expect.fails(HttpResponseException.class,
            () -> administration(withWrongKey(at)).getQueue("orders"));
        Expect.equal(401, error.getResponse().getStatusCode());
    }

    private static void expectExchange(Namespace at, AmqpTransportType transport) {
        String connectionString = at.connectionString.replace("UseDevelopmentEmulator=true", "")
            .replaceAll("sb://[^;/]*", "sb://contoso.servicebus.windows.net");
        ServiceBusClientBuilder builder = at.builder().connectionString(connectionString).transportType(transport)
            .customEndpointAddress("https://127.0.0.1:" + endpoint(at.connectionString).getPort());
        at.closing(builder.sender().queueName("orders").buildClient()).sendMessage(new ServiceBusMessage("secret"));
        ServiceBusReceiverClient receiver = at.closing(builder.receiver().queueName("orders").buildClient());
        receiver.complete(receiveOne(receiver));
        at.expectEmpty();
    }

    private static String withWrongKey(Namespace at) {
        return at.connectionString.replaceAll("SharedAccessKey=[^;]*", "SharedAccessKey=" + "A".repeat(43) + "=");
    }

    /** The administration client knows no port, so its transport adds the sandbox's. */
    private static ServiceBusAdministrationClient administration(String connectionString) {
        HttpClient http = HttpClient.createDefault();
        int port = endpoint(connectionString).getPort();
        return new ServiceBusAdministrationClientBuilder().connectionString(connectionString).httpClient(request -> {
            try {
                return http.send(request.setUrl(UrlBuilder.parse(request.getUrl()).setPort(port).toUrl()));
            } catch (MalformedURLException error) {
                throw new IllegalStateException(error);
            }
        }).buildClient();
    }

    private static URI endpoint(String connectionString) {
        return URI.create(connectionString.replaceAll(".*Endpoint=([^;]*).*", "$1"));
    }
}
