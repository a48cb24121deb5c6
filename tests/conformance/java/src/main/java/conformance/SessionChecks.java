package conformance;

import static conformance.Namespace.bodies;
import static conformance.Namespace.receive;
import static conformance.Namespace.receiveOne;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSessionReceiverClient;
import java.nio.charset.StandardCharsets;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** Sessions, their state and their locks. */
final class SessionChecks {
    static void acceptsANamedSession(Namespace at) {
        send(at, "other", "x");
        send(at, "named", "a", "b", "c");
        ServiceBusReceiverClient session = at.session("named");
        Expect.equal("named", session.getSessionId());
        List<ServiceBusReceivedMessage> messages = receive(session, 3);
        Expect.equal(List.of("a", "b", "c"), bodies(messages));
        Expect.equal("named", messages.get(0).getSessionId());
        messages.forEach(session::complete);
    }

    static void acceptsTheNextSession(Namespace at) {
        send(at, "first", "a");
        send(at, "second", "b");
        ServiceBusSessionReceiverClient sessions = sessions(at);
        ServiceBusReceiverClient one = at.closing(sessions.acceptNextSession());
        ServiceBusReceiverClient other = at.closing(sessions.acceptNextSession());
        Expect.equal(Set.of("first", "second"), Set.of(one.getSessionId(), other.getSessionId()));
    }

    static void findsNoNextSession(Namespace at) {
        ServiceBusSessionReceiverClient sessions = at.closing(at.builder(1).sessionReceiver().queueName("payments")
            .buildClient());
        RuntimeException error = Expect.fails(RuntimeException.class, sessions::acceptNextSession);
        Expect.isTrue(String.valueOf(error).contains("imeout"), "it failed otherwise: " + error);
    }

    static void refusesASessionThatIsHeld(Namespace at) {
        at.session("held");
        Expect.refused(AmqpErrorCondition.SESSION_CANNOT_BE_LOCKED, () -> at.session("held"));
    }

    static void acceptsASessionAgainAfterClosing(Namespace at) {
        send(at, "again", "a");
        ServiceBusReceiverClient first = at.session("again");
        receiveOne(first);
        first.close();
        Expect.equal("a", receiveOne(at.session("again")).getBody().toString());
    }

    static void keepsSessionState(Namespace at) {
        ServiceBusReceiverClient session = at.session("stateful");
        Expect.equal(null, session.getSessionState());
        session.setSessionState("step 2".getBytes(StandardCharsets.UTF_8));
        Expect.equal("step 2", new String(session.getSessionState(), StandardCharsets.UTF_8));
        session.setSessionState(null);
        Expect.equal(null, session.getSessionState());
    }

    static void renewsASessionLock(Namespace at) throws Exception {
        ServiceBusReceiverClient session = at.session("long");
        OffsetDateTime before = session.renewSessionLock();
        Thread.sleep(50);
        Expect.isTrue(session.renewSessionLock().isAfter(before), "the lock did not move");
    }

    static void settlesInASession(Namespace at) {
        send(at, "settled", "a", "b", "c");
        ServiceBusReceiverClient session = at.session("settled");
        List<ServiceBusReceivedMessage> messages = receive(session, 3);
        session.defer(messages.get(0));
        session.deadLetter(messages.get(1));
        session.abandon(messages.get(2));
        Expect.equal("c", receiveOne(session).getBody().toString());
        ServiceBusReceivedMessage deferred = session.receiveDeferredMessage(messages.get(0).getSequenceNumber());
        Expect.equal("a", deferred.getBody().toString());
        session.complete(deferred);
    }

    static void peeksInASession(Namespace at) {
        send(at, "other", "x");
        send(at, "peeked", "a", "b");
        Expect.equal(List.of("a", "b"), bodies(at.session("peeked").peekMessages(10)));
    }

    static void refusesAMessageWithoutASession(Namespace at) {
        Expect.fails(RuntimeException.class, () -> at.sender("payments").sendMessage(new ServiceBusMessage("x")));
    }

    static void sessionProcessorTakesSeveralSessions(Namespace at) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        CountDownLatch left = new CountDownLatch(9);
        ServiceBusProcessorClient processor = at.closing(at.builder().sessionProcessor().queueName("payments")
            .maxConcurrentSessions(3).processMessage(context -> {
                seen.add(context.getMessage().getSessionId());
                left.countDown();
            }).processError(context -> {}).buildProcessorClient());
        for (String id : List.of("s1", "s2", "s3")) {
            send(at, id, "a", "b", "c");
        }
        processor.start();
        Expect.isTrue(left.await(20, TimeUnit.SECONDS), left.getCount() + " messages were not processed");
        Expect.equal(Set.of("s1", "s2", "s3"), seen);
    }

    private static ServiceBusSessionReceiverClient sessions(Namespace at) {
        return at.closing(at.builder().sessionReceiver().queueName("payments").buildClient());
    }

    private static void send(Namespace at, String sessionId, String... bodies) {
        at.sender("payments").sendMessages(Stream.of(bodies)
            .map(each -> new ServiceBusMessage(each).setSessionId(sessionId)).toList());
    }
}
