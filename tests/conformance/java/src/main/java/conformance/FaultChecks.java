package conformance;

import static conformance.Namespace.bodies;
import static conformance.Namespace.receiveOne;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** The same clients before, during and after each fault of the sandbox. */
final class FaultChecks {
    /** A sender adds 4 s to each delay, and in one call never opens another link in place of a refused one. */
    private static final int SENDER_RETRIES = 1;
    private static final int RECEIVER_RETRIES = 50;
    private static final int SENDS = 4;

    static void survivesReset(Namespace at) throws Exception {
        expectRecovery(at, "reset", "duration_s", 1);
    }

    static void survivesRefused(Namespace at) throws Exception {
        expectRecovery(at, "refused", "duration_s", 1);
    }

    static void survivesBlackHole(Namespace at) throws Exception {
        expectRecovery(at, "black-holed", "duration_s", 3);
    }

    static void survivesABlackHoleOfAnEntity(Namespace at) throws Exception {
        expectRecovery(at, "black-holed", "entity", "orders", "duration_s", 3);
    }

    static void survivesDetached(Namespace at) throws Exception {
        expectRecovery(at, "detached");
    }

    static void survivesDisconnected(Namespace at) throws Exception {
        expectRecovery(at, "disconnected");
    }

    static void survivesRestartOfANode(Namespace at) throws Exception {
        expectRecovery(at, "node-restart", "entity", "orders", "duration_s", 1, "slow_s", 1, "delay_s", 0.1);
    }

    static void survivesLatency(Namespace at) throws Exception {
        expectRecovery(at, "latency", "delay_s", 0.2, "duration_s", 2);
    }

    static void survivesBusy(Namespace at) throws Exception {
        expectRecovery(at, "busy", "count", 1);
    }

    static void survivesUnanswered(Namespace at) throws Exception {
        expectRecovery(at, "unanswered", "count", 1);
    }

    static void survivesLostAcknowledgement(Namespace at) throws Exception {
        expectRecovery(at, "acknowledgement-lost", "count", 1);
    }

    static void survivesHalfOpen(Namespace at) throws Exception {
        at.sender("orders").sendMessage(new ServiceBusMessage("before"));
        try (AutoCloseable fault = at.fault("half-open")) {
            at.sender("orders").sendMessage(new ServiceBusMessage("new connection"));
            Expect.equal(List.of("before", "new connection"), bodies(at.receiver().peekMessages(5)));
        }
    }

    static void survivesLate(Namespace at) throws Exception {
        try (AutoCloseable fault = at.fault("late", "delay_s", 1)) {
            long began = System.nanoTime();
            at.sender("orders").sendMessage(new ServiceBusMessage("late"));
            Expect.equal("late", receiveOne(at.receiver()).getBody().toString());
            Expect.isTrue(System.nanoTime() - began > 0.9e9, "the message was not late");
        }
    }

    static void busyIsReported(Namespace at) throws Exception {
        expectRefusal(at, "busy", AmqpErrorCondition.SERVER_BUSY_ERROR);
    }

    static void disabledIsReported(Namespace at) throws Exception {
        expectRefusal(at, "disabled", AmqpErrorCondition.ENTITY_DISABLED_ERROR);
    }

    static void notFoundIsReported(Namespace at) throws Exception {
        expectRefusal(at, "not-found", AmqpErrorCondition.NOT_FOUND);
    }

    static void unauthorizedIsReported(Namespace at) throws Exception {
        expectRefusal(at, "unauthorized", AmqpErrorCondition.UNAUTHORIZED_ACCESS);
    }

    static void fullIsReported(Namespace at) throws Exception {
        expectRefusal(at, "full", AmqpErrorCondition.RESOURCE_LIMIT_EXCEEDED);
    }

    static void settlesOverANewConnection(Namespace at) throws Exception {
        ServiceBusReceiverClient receiver = at.closing(at.builder(RECEIVER_RETRIES).receiver().queueName("orders")
            .buildClient());
        var message = at.sendAndReceive(new ServiceBusMessage("locked"), receiver);
        at.fault("disconnected").close();
        Thread.sleep(500);
        receiver.complete(message);
        at.expectEmpty();
    }

    static void processorSurvivesDisconnected(Namespace at) throws Exception {
        expectProcessorRecovery(at, "disconnected");
    }

    static void processorSurvivesDetached(Namespace at) throws Exception {
        expectProcessorRecovery(at, "detached");
    }

    static void sessionProcessorSurvivesDisconnected(Namespace at) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        at.closing(at.builder(RECEIVER_RETRIES).sessionProcessor().queueName("payments").maxConcurrentSessions(1)
            .processMessage(context -> seen.add(context.getMessage().getBody().toString()))
            .processError(context -> {}).buildProcessorClient()).start();
        expectBoth(at, "payments", seen, "disconnected");
    }

    static void processorSurvivesReset(Namespace at) throws Exception {
        expectProcessorRecovery(at, "reset", "duration_s", 1);
    }

    /** A sender and a receiver work before the fault, and both again in or after it. */
    private static void expectRecovery(Namespace at, String kind, Object... terms) throws Exception {
        ServiceBusSenderClient sender = retryingSender(at, "orders");
        ServiceBusReceiverClient receiver = at.closing(at.builder(RECEIVER_RETRIES).receiver().queueName("orders")
            .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient());
        sender.sendMessage(new ServiceBusMessage("before"));
        Expect.equal("before", receiveOne(receiver).getBody().toString());
        try (AutoCloseable fault = at.fault(kind, terms)) {
            sendAgain(sender, new ServiceBusMessage("after"));
            Expect.equal("after", receiveOne(receiver).getBody().toString());
        }
    }

    /** Sends as an application does that tries again with the same client. */
    private static void sendAgain(ServiceBusSenderClient sender, ServiceBusMessage message) {
        for (int left = SENDS; left > 0; left--) {
            try {
                sender.sendMessage(message);
                return;
            } catch (ServiceBusException | IllegalStateException error) {
                if (left == 1) {
                    throw error;
                }
            }
        }
    }

    /** Sends again where the client gave up by itself, as while it replaces a link that the fault ended. */
    private static void sendUntilAnswered(ServiceBusSenderClient sender, ServiceBusMessage message) {
        for (int left = SENDS; left > 0; left--) {
            try {
                sender.sendMessage(message);
                return;
            } catch (ServiceBusException error) {
                if (left == 1 || Expect.refusalIn(error) != null) {
                    throw error;
                }
            }
        }
    }

    /** A sender is refused with this reason in the fault, and works again after it. */
    private static void expectRefusal(Namespace at, String kind, AmqpErrorCondition reason) throws Exception {
        ServiceBusSenderClient sender = at.sender("orders");
        sender.sendMessage(new ServiceBusMessage("before"));
        try (AutoCloseable fault = at.fault(kind, "entity", "orders")) {
            Expect.refused(reason, () -> sendUntilAnswered(sender, new ServiceBusMessage("refused")));
        }
        sender.sendMessage(new ServiceBusMessage("after"));
        Expect.equal(List.of("before", "after"), bodies(at.receiver().peekMessages(5)));
    }

    private static void expectProcessorRecovery(Namespace at, String kind, Object... terms) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        at.closing(at.builder(RECEIVER_RETRIES).processor().queueName("orders")
            .processMessage(context -> seen.add(context.getMessage().getBody().toString()))
            .processError(context -> {}).buildProcessorClient()).start();
        expectBoth(at, "orders", seen, kind, terms);
    }

    /** What is sent before and after the beginning of the fault is processed. */
    private static void expectBoth(Namespace at, String queue, Set<String> seen, String kind, Object... terms)
        throws Exception {
        ServiceBusSenderClient sender = retryingSender(at, queue);
        sender.sendMessage(new ServiceBusMessage("before").setSessionId("s"));
        await(seen, Set.of("before"));
        at.fault(kind, terms);
        sendAgain(sender, new ServiceBusMessage("after").setSessionId("s"));
        await(seen, Set.of("before", "after"));
    }

    private static ServiceBusSenderClient retryingSender(Namespace at, String queue) {
        return at.closing(at.builder(SENDER_RETRIES).sender().queueName(queue).buildClient());
    }

    private static void await(Set<String> seen, Set<String> wanted) throws InterruptedException {
        for (int turn = 0; turn < 300 && !seen.equals(wanted); turn++) {
            Thread.sleep(100);
        }
        Expect.equal(wanted, new HashSet<>(seen));
    }
}
