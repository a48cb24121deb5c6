package conformance;

import static conformance.Namespace.bodies;
import static conformance.Namespace.receive;
import static conformance.Namespace.receiveOne;

import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.ServiceBusTransactionContext;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.CompleteOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.stream.IntStream;

/** Transactions: what happens together or not at all. */
final class TransactionChecks {
    /** Clients of one connection, as a transaction needs them. */
    private record Clients(ServiceBusSenderClient sender, ServiceBusReceiverClient receiver) {
        static Clients of(Namespace at, ServiceBusClientBuilder shared) {
            ServiceBusReceiverClient receiver = at.closing(shared.receiver().queueName("orders").buildClient());
            return new Clients(at.closing(shared.sender().queueName("orders").buildClient()), receiver);
        }
    }

    private static ServiceBusMessage made(String body) {
        return new ServiceBusMessage(body);
    }

    private static CompleteOptions in(ServiceBusTransactionContext transaction) {
        return new CompleteOptions().setTransactionContext(transaction);
    }

    private static List<String> seen(Namespace at) {
        return bodies(at.receiver().peekMessages(20));
    }

    static void commitsAllSettlementsAndSends(Namespace at) {
        Clients clients = Clients.of(at, at.builder());
        clients.sender.sendMessages(List.of(made("complete"), made("abandon"), made("defer"), made("dead")));
        List<ServiceBusReceivedMessage> taken = receive(clients.receiver, 4);
        ServiceBusTransactionContext transaction = clients.sender.createTransaction();
        clients.receiver.complete(taken.get(0), in(transaction));
        clients.receiver.abandon(taken.get(1), new AbandonOptions().setTransactionContext(transaction));
        clients.receiver.defer(taken.get(2), new DeferOptions().setTransactionContext(transaction));
        clients.receiver.deadLetter(taken.get(3), new DeadLetterOptions().setTransactionContext(transaction));
        clients.sender.sendMessage(made("new"), transaction);
        Expect.equal(List.of("complete", "abandon", "defer", "dead"), seen(at));
        clients.sender.commitTransaction(transaction);
        Expect.equal(List.of("abandon", "defer", "new"), seen(at));
        Expect.equal("dead", receiveOne(at.deadLetterReceiver()).getBody().toString());
    }

    static void rollsBackSendsAndSettlements(Namespace at) {
        Clients clients = Clients.of(at, at.builder());
        clients.sender.sendMessage(made("a"));
        ServiceBusReceivedMessage message = receiveOne(clients.receiver);
        ServiceBusTransactionContext transaction = clients.receiver.createTransaction();
        clients.receiver.complete(message, in(transaction));
        clients.sender.sendMessage(made("b"), transaction);
        clients.sender.scheduleMessage(made("c"), OffsetDateTime.now().plusHours(1), transaction);
        clients.receiver.rollbackTransaction(transaction);
        Expect.equal(List.of("a"), seen(at));
    }

    static void commitsAcrossEntities(Namespace at) {
        ServiceBusClientBuilder shared = at.builder().enableCrossEntityTransactions();
        Clients clients = Clients.of(at, shared);
        at.sender("orders").sendMessages(List.of(made("first"), made("second")));
        List<ServiceBusReceivedMessage> taken = receive(clients.receiver, 2);
        ServiceBusSenderClient brief = at.closing(shared.sender().queueName("brief").buildClient());
        ServiceBusSenderClient audit = at.closing(shared.sender().topicName("audit").buildClient());
        for (int turn = 0; turn < 2; turn++) {
            ServiceBusTransactionContext transaction = clients.receiver.createTransaction();
            brief.sendMessage(made("b" + turn), transaction);
            audit.sendMessages(List.of(made("c" + turn), made("d" + turn)), transaction);
            clients.receiver.complete(taken.get(turn), in(transaction));
            if (turn == 0) {
                clients.receiver.rollbackTransaction(transaction);
            } else {
                clients.receiver.commitTransaction(transaction);
            }
        }
        Expect.equal(List.of("first"), seen(at));
        ServiceBusReceiverClient other = at.closing(at.builder().receiver().queueName("brief").buildClient());
        Expect.equal(List.of("b1"), bodies(other.peekMessages(10)));
        Expect.equal(List.of("c1", "d1"), bodies(at.subscriptionReceiver().peekMessages(10)));
    }

    static void keepsASecondEntityOut(Namespace at) {
        ServiceBusClientBuilder shared = at.builder();
        Clients clients = Clients.of(at, shared);
        ServiceBusSenderClient brief = at.closing(shared.sender().queueName("brief").buildClient());
        ServiceBusTransactionContext transaction = clients.sender.createTransaction();
        clients.sender.sendMessage(made("a"), transaction);
        brief.sendMessage(made("b"), transaction);  // refused, which the SDK does not tell
        clients.sender.commitTransaction(transaction);
        Expect.equal(List.of("a"), seen(at));
        ServiceBusReceiverClient other = at.closing(at.builder().receiver().queueName("brief").buildClient());
        Expect.equal(List.of(), bodies(other.peekMessages(10)));
    }

    static void aLostConnectionUndoesTheTransaction(Namespace at) throws Exception {
        Clients clients = Clients.of(at, at.builder(3));
        clients.sender.sendMessage(made("a"));
        ServiceBusReceivedMessage message = receiveOne(clients.receiver);
        ServiceBusTransactionContext transaction = clients.sender.createTransaction();
        clients.receiver.complete(message, in(transaction));
        clients.sender.sendMessage(made("b"), transaction);
        at.fault("disconnected", "count", 1).close();
        Expect.fails(RuntimeException.class, () -> clients.sender.commitTransaction(transaction));
        Expect.equal(List.of("a"), seen(at));
        ServiceBusTransactionContext another = clients.sender.createTransaction();
        clients.sender.sendMessage(made("c"), another);
        clients.sender.commitTransaction(another);
        Expect.equal(List.of("a", "c"), seen(at));
    }

    static void aTransactionEndsOnce(Namespace at) {
        Clients clients = Clients.of(at, at.builder());
        ServiceBusTransactionContext transaction = clients.sender.createTransaction();
        clients.sender.sendMessage(made("a"), transaction);
        clients.sender.commitTransaction(transaction);
        Expect.fails(RuntimeException.class, () -> clients.sender.commitTransaction(transaction));
        Expect.equal(List.of("a"), seen(at));
    }

    static void commitsOneAfterTheOther(Namespace at) {
        Clients clients = Clients.of(at, at.builder());
        IntStream.range(0, 40).forEach(each -> {
            ServiceBusTransactionContext transaction = clients.sender.createTransaction();
            clients.sender.sendMessage(made("m" + each), transaction);
            clients.sender.sendMessage(made("n" + each), transaction);
            if (each % 2 == 0) {
                clients.sender.commitTransaction(transaction);
            } else {
                clients.sender.rollbackTransaction(transaction);
            }
        });
        Expect.equal(40, receive(clients.receiver, 40).size());
    }
}
