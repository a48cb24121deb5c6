package conformance;

import static conformance.Namespace.receive;
import static conformance.Namespace.receiveOne;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusProcessorClient;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.models.AbandonOptions;
import com.azure.messaging.servicebus.models.DeadLetterOptions;
import com.azure.messaging.servicebus.models.DeferOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/** Receiving, settling and locks. */
final class SettlementChecks {
    static void receivesAndDeletes(Namespace at) {
        at.sender("orders").sendMessage(new ServiceBusMessage("gone"));
        Expect.equal("gone", receiveOne(at.deletingReceiver()).getBody().toString());
        at.expectEmpty();
    }

    static void receivesNothingFromAnEmptyQueue(Namespace at) {
        long began = System.nanoTime();
        Expect.equal(0L, at.receiver().receiveMessages(5, Duration.ofMillis(500)).stream().count());
        Expect.isTrue(System.nanoTime() - began < 8e9, "an empty queue held the receiver back");
    }

    static void completesEachOfMany(Namespace at) {
        at.sender("orders").sendMessages(IntStream.range(0, 50).mapToObj(each -> new ServiceBusMessage("m" + each))
            .toList());
        ServiceBusReceiverClient receiver = at.receiver();
        receive(receiver, 50).forEach(receiver::complete);
        at.expectEmpty();
    }

    static void abandonCountsTheDelivery(Namespace at) {
        ServiceBusReceiverClient receiver = at.receiver();
        ServiceBusReceivedMessage first = at.sendAndReceive(new ServiceBusMessage("again"), receiver);
        receiver.abandon(first, new AbandonOptions().setPropertiesToModify(Map.of("why", "not now")));
        ServiceBusReceivedMessage second = receiveOne(receiver);
        Expect.equal(1L, second.getDeliveryCount());
        Expect.equal("not now", second.getApplicationProperties().get("why"));
        receiver.complete(second);
    }

    static void deadLettersAfterTooManyDeliveries(Namespace at) {
        at.sender("orders").sendMessage(new ServiceBusMessage("poison"));
        ServiceBusReceiverClient receiver = at.receiver();
        for (int delivery = 0; delivery < 3; delivery++) {
            receiver.abandon(receiveOne(receiver));
        }
        ServiceBusReceivedMessage dead = receiveOne(at.deadLetterReceiver());
        Expect.equal("MaxDeliveryCountExceeded", dead.getDeadLetterReason());
    }

    static void receivesADeferredMessage(Namespace at) {
        ServiceBusReceiverClient receiver = at.receiver();
        ServiceBusReceivedMessage first = at.sendAndReceive(new ServiceBusMessage("later"), receiver);
        receiver.defer(first, new DeferOptions().setPropertiesToModify(Map.of("step", 2)));
        ServiceBusReceivedMessage deferred = receiver.receiveDeferredMessage(first.getSequenceNumber());
        Expect.equal(ServiceBusMessageState.DEFERRED, deferred.getState());
        Expect.equal(2, deferred.getApplicationProperties().get("step"));
        receiver.complete(deferred);
        at.expectEmpty();
    }

    static void receivesSeveralDeferredMessages(Namespace at) {
        at.sender("orders").sendMessages(List.of(new ServiceBusMessage("a"), new ServiceBusMessage("b")));
        ServiceBusReceiverClient receiver = at.receiver();
        List<ServiceBusReceivedMessage> messages = receive(receiver, 2);
        messages.forEach(receiver::defer);
        List<Long> numbers = messages.stream().map(ServiceBusReceivedMessage::getSequenceNumber).toList();
        List<ServiceBusReceivedMessage> deferred = receiver.receiveDeferredMessageBatch(numbers).stream().toList();
        Expect.equal(List.of("a", "b"), Namespace.bodies(deferred));
        receiver.abandon(deferred.get(0));
        receiver.deadLetter(deferred.get(1));
        Expect.equal("b", receiveOne(at.deadLetterReceiver()).getBody().toString());
    }

    static void findsNoDeferredMessageOfAnotherNumber(Namespace at) {
        Expect.equal(0L, at.receiver().receiveDeferredMessageBatch(List.of(12345L)).stream().count());
    }

    static void deadLettersWithAReason(Namespace at) {
        ServiceBusReceiverClient receiver = at.receiver();
        ServiceBusReceivedMessage message = at.sendAndReceive(new ServiceBusMessage("bad"), receiver);
        receiver.deadLetter(message, new DeadLetterOptions().setDeadLetterReason("broken")
            .setDeadLetterErrorDescription("in two").setPropertiesToModify(Map.of("part", "left")));
        ServiceBusReceiverClient deadLetters = at.deadLetterReceiver();
        ServiceBusReceivedMessage dead = receiveOne(deadLetters);
        Expect.equal("broken", dead.getDeadLetterReason());
        Expect.equal("in two", dead.getDeadLetterErrorDescription());
        Expect.equal("left", dead.getApplicationProperties().get("part"));
        deadLetters.complete(dead);
        at.expectEmpty();
    }

    static void renewsAMessageLock(Namespace at) throws Exception {
        ServiceBusReceiverClient receiver = at.receiver();
        ServiceBusReceivedMessage message = at.sendAndReceive(new ServiceBusMessage("long"), receiver);
        OffsetDateTime before = message.getLockedUntil();
        Thread.sleep(50);
        Expect.isTrue(receiver.renewMessageLock(message).isAfter(before), "the lock did not move");
        receiver.complete(message);
    }

    static void losesALockThatEnds(Namespace at) throws Exception {
        at.sender("brief").sendMessage(new ServiceBusMessage("late"));
        ServiceBusReceiverClient receiver = at.closing(at.builder().receiver().queueName("brief")
            .maxAutoLockRenewDuration(Duration.ZERO).buildClient());
        ServiceBusReceivedMessage message = receiveOne(receiver);
        Thread.sleep(6000);
        Expect.refused(AmqpErrorCondition.MESSAGE_LOCK_LOST, () -> receiver.complete(message));
        Expect.equal(1L, receiveOne(receiver).getDeliveryCount());
    }

    static void processorCompletesMessages(Namespace at) throws Exception {
        CountDownLatch left = new CountDownLatch(100);
        Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
        ServiceBusProcessorClient processor = at.closing(at.builder().processor().queueName("orders")
            .maxConcurrentCalls(5).processMessage(context -> left.countDown())
            .processError(context -> errors.add(context.getException())).buildProcessorClient());
        processor.start();
        at.sender("orders").sendMessages(IntStream.range(0, 100).mapToObj(each -> new ServiceBusMessage("m" + each))
            .toList());
        Expect.isTrue(left.await(20, TimeUnit.SECONDS), left.getCount() + " messages were not processed");
        at.awaitEmpty();
        Expect.equal(List.of(), List.copyOf(errors));
    }

    static void processorAbandonsWhatFails(Namespace at) throws Exception {
        Queue<Long> deliveries = new ConcurrentLinkedQueue<>();
        CountDownLatch done = new CountDownLatch(2);
        ServiceBusProcessorClient processor = at.closing(at.builder().processor().queueName("orders")
            .processMessage(context -> {
                deliveries.add(context.getMessage().getDeliveryCount());
                done.countDown();
                if (deliveries.size() == 1) {
                    throw new IllegalStateException("not now");
                }
            }).processError(context -> {}).buildProcessorClient());
        processor.start();
        at.sender("orders").sendMessage(new ServiceBusMessage("again"));
        Expect.isTrue(done.await(20, TimeUnit.SECONDS), "the message did not come again");
        Expect.equal(List.of(0L, 1L), List.copyOf(deliveries));
    }

    static void processorRenewsLocks(Namespace at) throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        Queue<Throwable> errors = new ConcurrentLinkedQueue<>();
        ServiceBusProcessorClient processor = at.closing(at.builder().processor().queueName("brief")
            .disableAutoComplete().maxAutoLockRenewDuration(Duration.ofMinutes(1)).processMessage(context -> {
                sleep(7000);
                context.complete();
                done.countDown();
            }).processError(context -> errors.add(context.getException())).buildProcessorClient());
        at.sender("brief").sendMessage(new ServiceBusMessage("slow work"));
        processor.start();
        Expect.isTrue(done.await(20, TimeUnit.SECONDS), "the message was not completed: " + errors);
        Expect.equal(List.of(), List.copyOf(errors));
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
