package main

import (
	"context"
	"errors"
	"time"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func abandonMessage(b *bench) {
	queue := b.queue(nil)
	b.send(queue, text("again"))
	receiver := b.receiver(queue)
	options := &sb.AbandonMessageOptions{PropertiesToModify: map[string]any{"why": "not now"}}
	check0(receiver.AbandonMessage(b, b.receiveOne(receiver), options))
	message := b.receiveOne(receiver)
	equal(message.DeliveryCount, uint32(2))
	equal(message.ApplicationProperties["why"], "not now")
	check0(receiver.CompleteMessage(b, message, nil))
}

func exceedDeliveryCount(b *bench) {
	queue := b.queue(&admin.QueueProperties{MaxDeliveryCount: pointer(int32(2))})
	b.send(queue, text("poison"))
	receiver := b.receiver(queue)
	for range 2 {
		check0(receiver.AbandonMessage(b, b.receiveOne(receiver), nil))
	}
	equal(*b.receiveOne(b.dead(queue)).DeadLetterReason, "MaxDeliveryCountExceeded")
	b.holds(queue, 0, 0)
}

func deferMessage(b *bench) {
	queue := b.queue(nil)
	b.send(queue, text("later"), text("now"))
	receiver := b.receiver(queue)
	first := b.receiveOne(receiver)
	check0(receiver.DeferMessage(b, first, nil))
	equal(b.take(receiver, 1), []string{"now"})
	peeked := must(receiver.PeekMessages(b, 10, nil))
	equal(len(peeked), 1)
	equal(peeked[0].State, sb.MessageStateDeferred)
	deferred := must(receiver.ReceiveDeferredMessages(b, []int64{*first.SequenceNumber}, nil))
	equal(len(deferred), 1)
	equal(string(deferred[0].Body), "later")
	equal(deferred[0].State, sb.MessageStateDeferred)
	check0(receiver.RenewMessageLock(b, deferred[0], nil))
	check0(receiver.CompleteMessage(b, deferred[0], nil))
	b.holds(queue, 0, 0)
}

func receiveUnknownDeferred(b *bench) {
	receiver := b.receiver(b.queue(nil))
	_, err := receiver.ReceiveDeferredMessages(b, []int64{4711}, nil)
	fails(err, sb.CodeNotFound)
}

func deadLetterMessage(b *bench) {
	queue := b.queue(nil)
	b.send(queue, text("bad"))
	receiver := b.receiver(queue)
	check0(receiver.DeadLetterMessage(b, b.receiveOne(receiver), &sb.DeadLetterOptions{
		Reason:             pointer("broken"),
		ErrorDescription:   pointer("in two"),
		PropertiesToModify: map[string]any{"seen": true},
	}))
	b.holds(queue, 0, 0)
	dead := b.dead(queue)
	message := b.receiveOne(dead)
	equal(*message.DeadLetterReason, "broken")
	equal(*message.DeadLetterErrorDescription, "in two")
	equal(message.ApplicationProperties["seen"], true)
	check0(dead.CompleteMessage(b, message, nil))
	b.holdsDead(queue, 0)
}

func peekMessages(b *bench) {
	queue := b.queue(nil)
	b.send(queue, text("one"), text("two"), text("three"))
	receiver := b.receiver(queue)
	first := must(receiver.PeekMessages(b, 2, nil))
	equal(len(first), 2)
	rest := must(receiver.PeekMessages(b, 2, nil))
	equal(len(rest), 1)
	equal(string(rest[0].Body), "three")
	equal(len(must(receiver.PeekMessages(b, 2, nil))), 0)
	options := &sb.PeekMessagesOptions{FromSequenceNumber: first[1].SequenceNumber}
	equal(string(must(receiver.PeekMessages(b, 1, options))[0].Body), "two")
	equal(b.take(receiver, 3), []string{"one", "two", "three"})
}

func renewLock(b *bench) {
	queue := b.queue(nil)
	b.send(queue, text("long"))
	receiver := b.receiver(queue)
	message := b.receiveOne(receiver)
	before := *message.LockedUntil
	advance(40 * time.Second)
	check0(receiver.RenewMessageLock(b, message, nil))
	expect(message.LockedUntil.Sub(before) > 30*time.Second, "renewed from %s to %s", before, message.LockedUntil)
	advance(40 * time.Second)
	check0(receiver.CompleteMessage(b, message, nil))
	b.holds(queue, 0, 0)
}

func loseLock(b *bench) {
	queue := b.queue(nil)
	b.send(queue, text("slow"))
	receiver := b.receiver(queue)
	message := b.receiveOne(receiver)
	advance(61 * time.Second)
	fails(receiver.RenewMessageLock(b, message, nil), sb.CodeLockLost)
	fails(receiver.CompleteMessage(b, message, nil), sb.CodeLockLost)
	again := b.receiveOne(receiver)
	equal(again.DeliveryCount, uint32(2))
	check0(receiver.CompleteMessage(b, again, nil))
}

func settleByToken(b *bench) {
	queue := b.queue(nil)
	b.send(queue, text("elsewhere"))
	token := b.receiveOne(b.receiver(queue)).LockToken
	other := b.connect(clientsString, &sb.ClientOptions{RetryOptions: quick})
	receiver := must(other.NewReceiverForQueue(queue, nil))
	check0(receiver.RenewMessageLock(b, &sb.ReceivedMessage{LockToken: token}, nil))
	check0(receiver.CompleteMessage(b, &sb.ReceivedMessage{LockToken: token}, nil))
	b.holds(queue, 0, 0)
}

func settleOverManagement(b *bench) {
	queue := b.queue(nil)
	b.send(queue, text("complete"), text("defer"), text("dead-letter"), text("abandon"))
	first := b.receiver(queue)
	messages := b.receive(first, 4)
	check0(first.Close(b))
	second := b.receiver(queue)
	check0(second.CompleteMessage(b, messages[0], nil))
	check0(second.DeferMessage(b, messages[1], nil))
	check0(second.DeadLetterMessage(b, messages[2], &sb.DeadLetterOptions{Reason: pointer("late")}))
	check0(second.AbandonMessage(b, messages[3], nil))
	equal(*b.receiveOne(b.dead(queue)).DeadLetterReason, "late")
	equal(b.take(second, 1), []string{"abandon"})
	b.holds(queue, 0, 1) // the deferred one
}

// A receiver releases messages that arrive between two calls; they return to the queue uncounted.
func releaseMessages(b *bench) {
	queue := b.queue(nil)
	receiver := b.receiver(queue)
	ctx, cancel := context.WithTimeout(b, silence)
	defer cancel()
	_, err := receiver.ReceiveMessages(ctx, 1, nil) // leaves one credit
	expect(errors.Is(err, context.DeadlineExceeded), "%v", err)
	b.send(queue, text("between"))
	time.Sleep(silence)
	message := b.receiveOne(b.receiver(queue))
	equal(string(message.Body), "between")
	equal(message.DeliveryCount, uint32(1))
}

func scheduleMessage(b *bench) {
	queue := b.queue(nil)
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	must(b.sender(queue).ScheduleMessages(b, []*sb.Message{text("scheduled")}, at, nil))
	b.send(queue, &sb.Message{Body: []byte("by property"), ScheduledEnqueueTime: &at})
	receiver := b.receiver(queue)
	peeked := must(receiver.PeekMessages(b, 10, nil))
	equal(len(peeked), 2)
	for _, message := range peeked {
		equal(message.State, sb.MessageStateScheduled)
		equal(message.ScheduledEnqueueTime.UTC(), at)
	}
	b.nothing(receiver)
	advance(time.Hour)
	equal(len(b.take(receiver, 2)), 2)
}

func cancelScheduled(b *bench) {
	queue := b.queue(nil)
	sender, at := b.sender(queue), time.Now().Add(1000*time.Hour)
	numbers := must(sender.ScheduleMessages(b, []*sb.Message{text("one"), text("two")}, at, nil))
	equal(len(numbers), 2)
	check0(sender.CancelScheduledMessages(b, numbers[:1], nil))
	b.holds(queue, 0, 1)
	fails(sender.CancelScheduledMessages(b, numbers[:1], nil), sb.CodeNotFound)
	check0(sender.CancelScheduledMessages(b, numbers[1:], nil))
	b.holds(queue, 0, 0)
}

func scheduleAnnotated(b *bench) {
	queue := b.queue(nil)
	message := &sb.AMQPAnnotatedMessage{Body: sb.AMQPAnnotatedMessageBody{Value: "scheduled"}}
	at := time.Now().Add(-time.Second)
	equal(len(must(b.sender(queue).ScheduleAMQPAnnotatedMessages(b, []*sb.AMQPAnnotatedMessage{message}, at, nil))), 1)
	equal(b.takeOne(queue).RawAMQPMessage.Body.Value, "scheduled")
}
