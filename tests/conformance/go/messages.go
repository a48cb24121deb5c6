package main

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"time"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"
)

func completeMessage(b *bench) {
	queue := b.queue(nil)
	b.send(queue, text("hello"))
	message := b.takeOne(queue)
	equal(string(message.Body), "hello")
	equal(message.MessageID, "hello")
	equal(message.DeliveryCount, uint32(1))
	expect(*message.SequenceNumber > 0, "sequence number %d", *message.SequenceNumber)
	expect(time.Since(*message.EnqueuedTime) < time.Minute, "enqueued at %s", message.EnqueuedTime)
	expect(time.Until(*message.LockedUntil) > 0, "locked until %s", message.LockedUntil)
	expect(message.LockToken != [16]byte{}, "no lock token")
	b.holds(queue, 0, 0)
}

func completeMessageWithoutID(b *bench) {
	queue := b.queue(nil)
	b.send(queue, &sb.Message{Body: []byte("anonymous")})
	message := b.takeOne(queue)
	equal(string(message.Body), "anonymous")
	expect(message.MessageID != "", "the service gives an id")
	b.holds(queue, 0, 0)
}

func keepOrder(b *bench) {
	queue := b.queue(nil)
	wanted := []string{}
	for number := range 50 {
		wanted = append(wanted, strconv.Itoa(number))
		b.send(queue, text(wanted[number]))
	}
	equal(b.take(b.receiver(queue), 50), wanted)
}

func sendBatch(b *bench) {
	queue, wanted := b.queue(nil), []string{}
	sender := b.sender(queue)
	batch := must(sender.NewMessageBatch(b, nil))
	for number := range 100 {
		wanted = append(wanted, strconv.Itoa(number))
		check0(batch.AddMessage(text(wanted[number]), nil))
	}
	equal(batch.NumMessages(), int32(100))
	check0(sender.SendMessageBatch(b, batch, nil))
	equal(b.take(b.receiver(queue), 100), wanted)
}

func fillBatch(b *bench) {
	queue := b.queue(nil)
	sender := b.sender(queue)
	batch := must(sender.NewMessageBatch(b, nil))
	var err error
	for err == nil {
		err = batch.AddMessage(&sb.Message{Body: make([]byte, 10_000)}, nil)
	}
	expect(errors.Is(err, sb.ErrMessageTooLarge), "%v", err)
	expect(batch.NumMessages() == 26, "a batch of 256 KiB held %d messages", batch.NumMessages())
	check0(sender.SendMessageBatch(b, batch, nil))
	b.holds(queue, 0, 26)
	small := must(sender.NewMessageBatch(b, &sb.MessageBatchOptions{MaxBytes: 100}))
	expect(errors.Is(small.AddMessage(&sb.Message{Body: make([]byte, 200)}, nil), sb.ErrMessageTooLarge), "it fits")
}

func refuseLargeMessage(b *bench) {
	queue := b.queue(nil)
	sender := b.sender(queue)
	err := sender.SendMessage(b, &sb.Message{Body: make([]byte, 300_000)}, nil)
	expect(errors.Is(err, sb.ErrMessageTooLarge), "%v", err)
	check0(sender.SendMessage(b, text("small"), nil))
	equal(string(b.takeOne(queue).Body), "small")
}

func sendManyFrames(b *bench) {
	queue, body := b.queue(nil), bytes.Repeat([]byte("0123456789"), 20_000)
	b.send(queue, &sb.Message{Body: body})
	expect(bytes.Equal(b.takeOne(queue).Body, body), "the body differs")
}

func deleting(b *bench, queue string) *sb.Receiver {
	return must(b.client.NewReceiverForQueue(queue, &sb.ReceiverOptions{ReceiveMode: sb.ReceiveModeReceiveAndDelete}))
}

func receiveAndDelete(b *bench) {
	queue := b.queue(nil)
	b.send(queue, text("one"), text("two"))
	receiver := deleting(b, queue)
	equal(string(b.receiveOne(receiver).Body), "one")
	second := b.receiveOne(receiver)
	equal(string(second.Body), "two")
	expect(receiver.CompleteMessage(b, second, nil) != nil, "there is nothing to complete")
	b.holds(queue, 0, 0)
}

func receiveCachedMessages(b *bench) {
	queue := b.queue(nil)
	receiver := deleting(b, queue)
	ctx, cancel := context.WithTimeout(b, silence)
	defer cancel()
	_, err := receiver.ReceiveMessages(ctx, 3, nil) // leaves three credits
	expect(errors.Is(err, context.DeadlineExceeded), "%v", err)
	b.send(queue, text("one"), text("two"))
	time.Sleep(silence)
	check0(receiver.Close(b))
	equal(len(must(receiver.ReceiveMessages(b, 10, nil))), 2)
	_, err = receiver.ReceiveMessages(b, 10, nil)
	fails(err, sb.CodeClosed)
}

func keepSystemProperties(b *bench) {
	queue := b.queue(nil)
	sent := &sb.Message{
		Body:             []byte("all"),
		MessageID:        pointer("id"),
		ContentType:      pointer("application/json"),
		CorrelationID:    pointer("correlation"),
		PartitionKey:     pointer("key"),
		ReplyTo:          pointer("reply-to"),
		ReplyToSessionID: pointer("reply-to-session"),
		SessionID:        pointer("key"),
		Subject:          pointer("subject ü"),
		TimeToLive:       pointer(time.Hour),
		To:               pointer("to"),
	}
	b.send(queue, sent)
	got := b.takeOne(queue)
	equal(got.Message(), sent)
	equal(*got.ExpiresAt, got.EnqueuedTime.Add(time.Hour))
	equal(got.State, sb.MessageStateActive)
}

func keepPropertyTypes(b *bench) {
	queue := b.queue(nil)
	sent := map[string]any{
		"bool":    true,
		"int8":    int8(-8),
		"int16":   int16(-1600),
		"int32":   int32(-320_000),
		"int64":   int64(-1 << 60),
		"uint8":   uint8(8),
		"uint16":  uint16(1600),
		"uint32":  uint32(320_000),
		"uint64":  uint64(1 << 63),
		"float32": float32(0.5),
		"float64": 0.1,
		"string":  "ä€😀",
		"bytes":   []byte{0, 255},
		"time":    time.UnixMilli(1_700_000_000_123).UTC(),
		"uuid":    amqp.UUID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		"null":    nil,
	}
	b.send(queue, &sb.Message{ApplicationProperties: sent})
	got := b.takeOne(queue).ApplicationProperties
	got["time"] = got["time"].(time.Time).UTC()
	equal(got, sent)
}

// exchange sends an annotated message and returns it as received.
func (b *bench) exchange(message *sb.AMQPAnnotatedMessage) *sb.AMQPAnnotatedMessage {
	queue := b.queue(nil)
	check0(b.sender(queue).SendAMQPAnnotatedMessage(b, message, nil))
	return b.takeOne(queue).RawAMQPMessage
}

func keepValueBody(b *bench) {
	for _, value := range []any{"text", int64(7), true, []any{int64(1), "two", nil}, map[string]any{"a": uint64(1)}} {
		got := b.exchange(&sb.AMQPAnnotatedMessage{Body: sb.AMQPAnnotatedMessageBody{Value: value}})
		equal(got.Body.Value, value)
		equal(len(got.Body.Data), 0)
	}
}

func keepSequenceBody(b *bench) {
	body := [][]any{{int64(1), "two"}, {true, 0.5}}
	got := b.exchange(&sb.AMQPAnnotatedMessage{Body: sb.AMQPAnnotatedMessageBody{Sequence: body}})
	equal(got.Body.Sequence, body)
}

func keepDataSections(b *bench) {
	body := [][]byte{[]byte("one"), []byte("two")}
	got := b.exchange(&sb.AMQPAnnotatedMessage{Body: sb.AMQPAnnotatedMessageBody{Data: body}})
	equal(got.Body.Data, body)
}

func keepAnnotatedSections(b *bench) {
	got := b.exchange(&sb.AMQPAnnotatedMessage{
		Body:               sb.AMQPAnnotatedMessageBody{Data: [][]byte{[]byte("all")}},
		Footer:             map[any]any{"checksum": int64(7)},
		Header:             &sb.AMQPAnnotatedMessageHeader{Durable: true, Priority: 7, TTL: time.Hour},
		MessageAnnotations: map[any]any{"x-opt-mine": "annotation"},
		Properties: &sb.AMQPAnnotatedMessageProperties{
			MessageID:       uint64(9),
			CorrelationID:   amqp.UUID{1},
			ContentEncoding: pointer("utf-8"),
			CreationTime:    pointer(time.UnixMilli(1_700_000_000_000).UTC()),
			GroupSequence:   pointer(uint32(3)),
			UserID:          []byte("me"),
		},
	})
	equal(got.Footer, map[any]any{"checksum": int64(7)})
	equal(got.MessageAnnotations["x-opt-mine"], "annotation")
	equal(got.Header.Priority, uint8(7))
	equal(got.Header.TTL, time.Hour)
	equal(got.Properties.MessageID, uint64(9))
	equal(got.Properties.CorrelationID, amqp.UUID{1})
	equal(*got.Properties.ContentEncoding, "utf-8")
	equal(got.Properties.CreationTime.UTC(), time.UnixMilli(1_700_000_000_000).UTC())
	equal(*got.Properties.GroupSequence, uint32(3))
	equal(got.Properties.UserID, []byte("me"))
}

func expireMessage(b *bench) {
	queue := b.queue(nil)
	message := text("short")
	message.TimeToLive = pointer(time.Minute)
	b.send(queue, message, text("long"))
	advance(61 * time.Second)
	equal(b.take(b.receiver(queue), 1), []string{"long"})
	b.holds(queue, 0, 0)
}

func deadLetterExpired(b *bench) {
	queue := b.queue(&admin.QueueProperties{DeadLetteringOnMessageExpiration: pointer(true)})
	message := text("short")
	message.TimeToLive = pointer(time.Minute)
	b.send(queue, message)
	advance(61 * time.Second)
	b.nothing(b.receiver(queue))
	dead := b.dead(queue)
	expired := b.receiveOne(dead)
	equal(*expired.DeadLetterReason, "TTLExpiredException")
	check0(dead.CompleteMessage(b, expired, nil))
}

func discardDuplicates(b *bench) {
	queue := b.queue(&admin.QueueProperties{RequiresDuplicateDetection: pointer(true)})
	b.send(queue, text("one"), text("one"), text("two"))
	equal(b.take(b.receiver(queue), 2), []string{"one", "two"})
	b.holds(queue, 0, 0)
}

func waitForDeadline(b *bench) {
	receiver, began := b.receiver(b.queue(nil)), time.Now()
	b.nothing(receiver)
	expect(time.Since(began) >= silence, "it returned after %s", time.Since(began))
}
