package conformance;

import static conformance.Namespace.PATIENCE;
import static conformance.Namespace.bodies;
import static conformance.Namespace.receive;
import static conformance.Namespace.receiveOne;

import com.azure.core.amqp.exception.AmqpErrorCondition;
import com.azure.core.amqp.models.AmqpAnnotatedMessage;
import com.azure.core.amqp.models.AmqpMessageBody;
import com.azure.core.amqp.models.AmqpMessageBodyType;
import com.azure.core.util.BinaryData;
import com.azure.messaging.servicebus.ServiceBusException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusMessageBatch;
import com.azure.messaging.servicebus.ServiceBusReceivedMessage;
import com.azure.messaging.servicebus.ServiceBusReceiverClient;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.messaging.servicebus.models.CreateMessageBatchOptions;
import com.azure.messaging.servicebus.models.ServiceBusMessageState;
import java.net.URI;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.stream.IntStream;

/** Sending, peeking, scheduling, and what messages carry. */
final class MessageChecks {
    static void sendsOneMessage(Namespace at) {
        ServiceBusReceiverClient receiver = at.receiver();
        ServiceBusReceivedMessage got = at.sendAndReceive(new ServiceBusMessage("one").setMessageId("m1"), receiver);
        Expect.equal("one", got.getBody().toString());
        Expect.equal("m1", got.getMessageId());
        receiver.complete(got);
        at.expectEmpty();
    }

    static void sendsAList(Namespace at) {
        at.sender("orders").sendMessages(messages("a", "b", "c"));
        Expect.equal(List.of("a", "b", "c"), bodies(receive(at.deletingReceiver(), 3)));
    }

    static void fillsABatchToTheLimit(Namespace at) {
        ServiceBusSenderClient sender = at.sender("orders");
        ServiceBusMessageBatch batch = sender.createMessageBatch();
        Expect.isTrue(batch.getMaxSizeInBytes() >= 256 * 1024, "a batch holds " + batch.getMaxSizeInBytes());
        while (batch.tryAddMessage(new ServiceBusMessage(new byte[8192]))) {
            Expect.isTrue(batch.getCount() < 1000, "the batch never fills");
        }
        Expect.isTrue(batch.getCount() > 25, "the batch holds only " + batch.getCount());
        sender.sendMessages(batch);
        Expect.equal(batch.getCount(), receive(at.deletingReceiver(), batch.getCount()).size());
        at.expectEmpty();
    }

    static void refusesABatchAboveTheLimit(Namespace at) {
        CreateMessageBatchOptions options = new CreateMessageBatchOptions().setMaximumSizeInBytes(8 * 1024 * 1024);
        Expect.fails(ServiceBusException.class, () -> at.sender("orders").createMessageBatch(options));
    }

    static void refusesAMessageThatIsTooLarge(Namespace at) {
        ServiceBusSenderClient sender = at.sender("orders");
        Expect.refused(AmqpErrorCondition.LINK_PAYLOAD_SIZE_EXCEEDED,
            () -> sender.sendMessage(new ServiceBusMessage(new byte[2_000_000])));
        sender.sendMessage(new ServiceBusMessage("small"));
        Expect.equal(List.of("small"), bodies(receive(at.deletingReceiver(), 1)));
    }

    static void sendsAMessageOfSeveralFrames(Namespace at) {
        byte[] body = new byte[200_000];
        IntStream.range(0, body.length).forEach(each -> body[each] = (byte) (each % 251));
        at.sender("orders").sendMessage(new ServiceBusMessage(body));
        Expect.equal(body, receiveOne(at.deletingReceiver()).getBody().toBytes());
    }

    static void assignsAMessageIdIfThereIsNone(Namespace at) {
        ServiceBusReceiverClient receiver = at.receiver();
        ServiceBusReceivedMessage got = at.sendAndReceive(new ServiceBusMessage("anonymous"), receiver);
        Expect.isTrue(got.getMessageId() != null && !got.getMessageId().isEmpty(), "the message has no id");
        receiver.complete(got);
    }

    static void keepsSystemProperties(Namespace at) {
        ServiceBusMessage sent = new ServiceBusMessage("body").setMessageId("m").setCorrelationId("c")
            .setContentType("text/plain").setSubject("s").setTo("t").setReplyTo("r").setReplyToSessionId("rs")
            .setPartitionKey("p").setTimeToLive(Duration.ofHours(1));
        ServiceBusReceivedMessage got = at.sendAndReceive(sent, at.receiver());
        Expect.equal(List.of("m", "c", "text/plain", "s", "t", "r", "rs", "p", Duration.ofHours(1)),
            List.of(got.getMessageId(), got.getCorrelationId(), got.getContentType(), got.getSubject(), got.getTo(),
                got.getReplyTo(), got.getReplyToSessionId(), got.getPartitionKey(), got.getTimeToLive()));
    }

    static void setsBrokerProperties(Namespace at) {
        ServiceBusReceivedMessage got = at.sendAndReceive(new ServiceBusMessage("x"), at.receiver());
        Duration age = Duration.between(got.getEnqueuedTime(), OffsetDateTime.now()).abs();
        Expect.isTrue(age.compareTo(PATIENCE) < 0, "it was enqueued " + age + " ago");
        Expect.isTrue(got.getLockedUntil().isAfter(OffsetDateTime.now()), "its lock ended " + got.getLockedUntil());
        Expect.equal(36, UUID.fromString(got.getLockToken()).toString().length());
        Expect.isTrue(got.getSequenceNumber() > 0, "its sequence number is " + got.getSequenceNumber());
        Expect.equal(0L, got.getDeliveryCount());
        Expect.equal(ServiceBusMessageState.ACTIVE, got.getState());
    }

    static void keepsTheTypesOfApplicationProperties(Namespace at) {
        Map<String, Object> properties = new LinkedHashMap<>(Map.of(
            "string", "ä", "boolean", true, "byte", (byte) 1, "short", (short) 2, "integer", 3, "long", 4L,
            "float", 0.5f, "double", 0.25, "char", 'c', "uuid", new UUID(1, 2)));
        properties.put("date", new Date(1_700_000_000_000L));
        properties.put("uri", URI.create("https://contoso.example/a?b=c"));
        properties.put("duration", Duration.ofMillis(1500));
        properties.put("offset date", OffsetDateTime.of(2026, 1, 2, 3, 4, 5, 0, ZoneOffset.UTC));
        ServiceBusMessage sent = new ServiceBusMessage("typed");
        sent.getApplicationProperties().putAll(properties);
        ServiceBusReceivedMessage got = at.sendAndReceive(sent, at.receiver());
        for (String name : properties.keySet()) {
            Expect.equal(properties.get(name), got.getApplicationProperties().get(name));
        }
    }

    static void sendsAValueBody(Namespace at) {
        for (Object value : List.of("text", 42, List.of("a", "b"), Map.of("key", 1L))) {
            at.sender("orders").sendMessage(new ServiceBusMessage(AmqpMessageBody.fromValue(value)));
            AmqpMessageBody body = received(at).getBody();
            Expect.equal(AmqpMessageBodyType.VALUE, body.getBodyType());
            Expect.equal(value, body.getValue());
        }
    }

    static void sendsASequenceBody(Namespace at) {
        List<Object> values = List.of("a", 1, true);
        at.sender("orders").sendMessage(new ServiceBusMessage(AmqpMessageBody.fromSequence(values)));
        AmqpMessageBody body = received(at).getBody();
        Expect.equal(AmqpMessageBodyType.SEQUENCE, body.getBodyType());
        Expect.equal(values, body.getSequence());
    }

    static void sendsAnEmptyBody(Namespace at) {
        at.sender("orders").sendMessage(new ServiceBusMessage(BinaryData.fromBytes(new byte[0])));
        Expect.equal(0, receiveOne(at.deletingReceiver()).getBody().toBytes().length);
    }

    static void keepsTheHeader(Namespace at) {
        ServiceBusMessage sent = new ServiceBusMessage("x");
        sent.getRawAmqpMessage().getHeader().setPriority((short) 7).setDurable(true);
        at.sender("orders").sendMessage(sent);
        AmqpAnnotatedMessage raw = received(at);
        Expect.equal((short) 7, raw.getHeader().getPriority());
        Expect.equal(true, raw.getHeader().isDurable());
    }

    static void sendsAReceivedMessageAgain(Namespace at) {
        ServiceBusReceivedMessage first = at.sendAndReceive(new ServiceBusMessage("twice"), at.deletingReceiver());
        at.sender("orders").sendMessage(new ServiceBusMessage(first));
        ServiceBusReceivedMessage second = receiveOne(at.deletingReceiver());
        Expect.equal("twice", second.getBody().toString());
        Expect.isTrue(second.getSequenceNumber() > first.getSequenceNumber(), "the sequence number did not grow");
    }

    static void peeksWithoutReceiving(Namespace at) {
        at.sender("orders").sendMessages(messages("a", "b", "c"));
        ServiceBusReceiverClient receiver = at.receiver();
        List<ServiceBusReceivedMessage> peeked = new ArrayList<>();
        receiver.peekMessages(10).forEach(peeked::add);
        Expect.equal(List.of("a", "b", "c"), bodies(peeked));
        Expect.equal("b", receiver.peekMessage(peeked.get(1).getSequenceNumber()).getBody().toString());
        Expect.equal(List.of("a", "b", "c"), bodies(receive(at.deletingReceiver(), 3)));
    }

    static void schedulesAndCancels(Namespace at) {
        ServiceBusSenderClient sender = at.sender("orders");
        OffsetDateTime later = OffsetDateTime.now().plusHours(1);
        long one = sender.scheduleMessage(new ServiceBusMessage("one"), later);
        Iterable<Long> more = sender.scheduleMessages(messages("two", "three"), later);
        ServiceBusReceivedMessage peeked = at.receiver().peekMessage();
        Expect.equal(ServiceBusMessageState.SCHEDULED, peeked.getState());
        Expect.equal(later.toEpochSecond(), peeked.getScheduledEnqueueTime().toEpochSecond());
        sender.cancelScheduledMessage(one);
        sender.cancelScheduledMessages(more);
        at.expectEmpty();
    }

    static void receivesAScheduledMessageWhenDue(Namespace at) {
        OffsetDateTime due = OffsetDateTime.now().plusSeconds(1);
        at.sender("orders").scheduleMessage(new ServiceBusMessage("due"), due);
        receiveOne(at.deletingReceiver());
        Expect.isTrue(!OffsetDateTime.now().isBefore(due), "the message came before it was due");
    }

    static void deadLettersAnExpiredMessage(Namespace at) {
        at.sender("orders").sendMessage(new ServiceBusMessage("brief").setTimeToLive(Duration.ofMillis(200)));
        ServiceBusReceivedMessage dead = receiveOne(at.deadLetterReceiver());
        Expect.equal("TTLExpiredException", dead.getDeadLetterReason());
    }

    static void detectsADuplicate(Namespace at) {
        ServiceBusSenderClient sender = at.sender("unique");
        sender.sendMessage(new ServiceBusMessage("first").setMessageId("same"));
        sender.sendMessage(new ServiceBusMessage("second").setMessageId("same"));
        ServiceBusReceiverClient receiver = at.closing(at.builder().receiver().queueName("unique").buildClient());
        Expect.equal(List.of("first"), bodies(receiver.peekMessages(10)));
    }

    private static AmqpAnnotatedMessage received(Namespace at) {
        return receiveOne(at.deletingReceiver()).getRawAmqpMessage();
    }

    private static List<ServiceBusMessage> messages(String... bodies) {
        return List.of(bodies).stream().map(ServiceBusMessage::new).toList();
    }
}
