package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/log"
	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"
)

const (
	outage   = 500 * time.Millisecond
	deadline = time.Second
)

var brief = terms{"duration_s": outage.Seconds()}

// outlast sends before, during and after a fault of the namespace that ends by itself.
func (b *bench) outlast(kind string, limits func(queue string) terms) {
	queue := b.queue(nil)
	sender := b.sender(queue)
	check0(sender.SendMessage(b, text("before"), nil))
	b.fault(kind, limits(queue))
	began := time.Now()
	check0(sender.SendMessage(b, text("during"), nil))
	expect(time.Since(began) > outage/2, "the send took %s, the fault does nothing", time.Since(began))
	check0(sender.SendMessage(b, text("after"), nil))
	equal(b.take(b.receiver(queue), 3), []string{"before", "during", "after"})
}

func whole(string) terms { return brief }

// late calls with a deadline and expects that the call meets it.
func (b *bench) late(call func(context.Context) error) {
	ctx, cancel := context.WithTimeout(b, deadline)
	defer cancel()
	err := call(ctx)
	expect(errors.Is(err, context.DeadlineExceeded), "instead of the deadline: %v", err)
}

func outlastRefused(b *bench) { b.outlast("refused", whole) }

func outlastReset(b *bench) { b.outlast("reset", whole) }

func outlastNodeRestart(b *bench) {
	b.outlast("node-restart", func(queue string) terms {
		entities := []string{queue}
		return terms{"entities": entities, "duration_s": outage.Seconds(), "slow_s": 0.2, "delay_s": 0.05}
	})
}

func receiveAfterReset(b *bench) {
	queue := b.queue(nil)
	receiver := b.receiver(queue)
	b.send(queue, text("before"), text("after"))
	equal(b.take(receiver, 1), []string{"before"})
	b.fault("reset", brief)
	equal(b.take(receiver, 1), []string{"after"})
}

func outlastBlackHole(b *bench) {
	queue := b.queue(nil)
	sender := b.sender(queue)
	check0(sender.SendMessage(b, text("before"), nil))
	end := b.fault("black-holed", terms{"entity": queue})
	b.late(func(ctx context.Context) error { return sender.SendMessage(ctx, text("lost"), nil) })
	end()
	check0(sender.SendMessage(b, text("after"), nil))
	equal(b.take(b.receiver(queue), 2), []string{"before", "after"})
}

// The SDK keeps a dead connection for its idle time-out of a minute; an application replaces the client.
func replaceHalfOpenClient(b *bench) {
	queue := b.queue(nil)
	sender := b.sender(queue)
	check0(sender.SendMessage(b, text("before"), nil))
	b.fault("half-open", nil)
	b.late(func(ctx context.Context) error { return sender.SendMessage(ctx, text("lost"), nil) })
	b.connectBoth()
	b.send(queue, text("after"))
	equal(b.take(b.receiver(queue), 2), []string{"before", "after"})
}

func sendUnanswered(b *bench) {
	queue := b.queue(nil)
	sender := b.sender(queue)
	b.fault("unanswered", terms{"entity": queue, "count": 1})
	b.late(func(ctx context.Context) error { return sender.SendMessage(ctx, text("there"), nil) })
	equal(b.take(b.receiver(queue), 1), []string{"there"})
}

func loseAcknowledgement(b *bench) {
	queue := b.queue(&admin.QueueProperties{RequiresDuplicateDetection: pointer(true)})
	sender := b.sender(queue)
	check0(sender.SendMessage(b, text("before"), nil))
	b.fault("acknowledgement-lost", terms{"entity": queue, "count": 1})
	check0(sender.SendMessage(b, text("once"), nil)) // the SDK sends it twice
	equal(b.take(b.receiver(queue), 2), []string{"before", "once"})
	b.holds(queue, 0, 0)
}

func outlastBusy(b *bench) {
	queue := b.queue(nil)
	b.fault("busy", terms{"entity": queue, "count": 2})
	b.send(queue, text("patient"))
	equal(b.take(b.receiver(queue), 1), []string{"patient"})
}

func scheduleWhileBusy(b *bench) {
	queue := b.queue(nil)
	b.fault("busy", terms{"entity": queue, "count": 2})
	must(b.sender(queue).ScheduleMessages(b, []*sb.Message{text("later")}, time.Now().Add(1000*time.Hour), nil))
	b.holds(queue, 0, 1)
}

func receiveLate(b *bench) {
	queue := b.queue(nil)
	b.fault("late", terms{"entity": queue, "delay_s": 600})
	b.send(queue, text("late"))
	receiver := b.receiver(queue)
	b.nothing(receiver)
	advance(601 * time.Second)
	equal(b.take(receiver, 1), []string{"late"})
}

func sendSlowly(b *bench) {
	queue := b.queue(nil)
	sender := b.sender(queue)
	check0(sender.SendMessage(b, text("quick"), nil))
	end := b.fault("latency", terms{"delay_s": 0.3})
	began := time.Now()
	check0(sender.SendMessage(b, text("slow"), nil))
	expect(time.Since(began) >= 300*time.Millisecond, "it took %s", time.Since(began))
	end()
	equal(b.take(b.receiver(queue), 2), []string{"quick", "slow"})
}

func outlastDetach(b *bench) {
	queue := b.queue(nil)
	b.outlastBreak(queue, func() { b.fault("detached", terms{"entity": queue}) })
}

func outlastDisconnect(b *bench) {
	b.outlastBreak(b.queue(nil), func() { b.fault("disconnected", nil) })
}

// outlastBreak expects that links work as before when the service has ended them once.
func (b *bench) outlastBreak(queue string, end func()) {
	sender, receiver := b.sender(queue), b.receiver(queue)
	check0(sender.SendMessage(b, text("before"), nil))
	equal(b.take(receiver, 1), []string{"before"})
	var recovered atomic.Bool
	log.SetEvents(sb.EventConn)
	log.SetListener(func(_ log.Event, line string) {
		if strings.Contains(line, "Recovered ") {
			recovered.Store(true)
		}
	})
	defer log.SetListener(nil)
	end()
	check0(sender.SendMessage(b, text("after"), nil))
	expect(recovered.Load(), "the SDK had nothing to recover from")
	equal(b.take(receiver, 1), []string{"after"})
	equal(len(must(receiver.PeekMessages(b, 10, nil))), 0)
}

func completeAfterDetach(b *bench) {
	queue := b.queue(nil)
	b.send(queue, text("locked"))
	receiver := b.receiver(queue)
	message := b.receiveOne(receiver)
	b.fault("detached", terms{"entity": queue})
	check0(receiver.CompleteMessage(b, message, nil))
	b.holds(queue, 0, 0)
}

func acceptSessionAfterDisconnect(b *bench) {
	queue := b.sessionQueue()
	b.send(queue, inSession("a", "1"), inSession("a", "2"))
	receiver := b.accept(queue, "a")
	equal(b.take(receiver, 1), []string{"1"})
	b.fault("disconnected", nil)
	equal(b.take(receiver, 1), []string{"2"})
	equal(receiver.SessionID(), "a")
}

// refused sends during a fault that the service reports, and after it. The SDK gives such a link up for good; an
// application opens a new sender.
func (b *bench) refused(kind string, judge func(error)) {
	queue := b.queue(nil)
	sender := b.sender(queue)
	check0(sender.SendMessage(b, text("before"), nil))
	end := b.fault(kind, terms{"entity": queue})
	judge(sender.SendMessage(b, text("refused"), nil))
	end()
	b.send(queue, text("after"))
	equal(b.take(b.receiver(queue), 2), []string{"before", "after"})
}

func outlastDisabled(b *bench) {
	b.refused("disabled", func(err error) { failsWith(err, "com.microsoft:entity-disabled") })
}

func outlastNotFound(b *bench) {
	b.refused("not-found", func(err error) { failsWith(err, amqp.ErrCondNotFound) })
}

func outlastUnauthorized(b *bench) {
	b.refused("unauthorized", func(err error) { fails(err, sb.CodeUnauthorizedAccess) })
}

func outlastFull(b *bench) {
	b.refused("full", func(err error) { failsWith(err, amqp.ErrCondResourceLimitExceeded) })
}
