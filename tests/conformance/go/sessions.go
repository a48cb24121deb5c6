package main

import (
	"slices"
	"time"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
)

func inSession(session, body string) *sb.Message {
	message := text(body)
	message.SessionID = &session
	return message
}

func (b *bench) accept(queue, session string) *sb.SessionReceiver {
	return must(b.client.AcceptSessionForQueue(b, queue, session, nil))
}

func acceptNamedSession(b *bench) {
	queue := b.sessionQueue()
	b.send(queue, inSession("a", "1"), inSession("b", "2"), inSession("a", "3"))
	receiver := b.accept(queue, "a")
	equal(receiver.SessionID(), "a")
	expect(time.Until(receiver.LockedUntil()) > 0, "locked until %s", receiver.LockedUntil())
	messages := b.receive(receiver, 2)
	equal(*messages[0].SessionID, "a")
	for index, body := range []string{"1", "3"} {
		equal(string(messages[index].Body), body)
		check0(receiver.CompleteMessage(b, messages[index], nil))
	}
	b.nothing(receiver)
	equal(b.take(b.accept(queue, "b"), 1), []string{"2"})
}

func acceptNextSession(b *bench) {
	queue := b.sessionQueue()
	b.send(queue, inSession("a", "1"), inSession("b", "2"))
	seen := []string{}
	for range 2 {
		receiver := must(b.client.AcceptNextSessionForQueue(b, queue, nil))
		seen = append(seen, receiver.SessionID())
		equal(len(b.take(receiver, 1)), 1)
		check0(receiver.Close(b))
	}
	slices.Sort(seen)
	equal(seen, []string{"a", "b"})
}

// The SDK asks the service to answer only milliseconds before its own deadline, so the clock is advanced to there.
func acceptNoSession(b *bench) {
	queue := b.sessionQueue()
	waiting := make(chan error)
	go func() {
		_, err := b.client.AcceptNextSessionForQueue(b, queue, nil)
		waiting <- err
	}()
	time.Sleep(2 * silence)
	advance(patience)
	fails(<-waiting, sb.CodeTimeout)
}

func refuseLockedSession(b *bench) {
	queue := b.sessionQueue()
	receiver := b.accept(queue, "mine")
	_, err := b.client.AcceptSessionForQueue(b, queue, "mine", nil)
	failsWith(err, "com.microsoft:session-cannot-be-locked")
	check0(receiver.Close(b))
	check0(b.accept(queue, "mine").Close(b))
}

func keepSessionState(b *bench) {
	queue := b.sessionQueue()
	receiver := b.accept(queue, "a")
	equal(len(must(receiver.GetSessionState(b, nil))), 0)
	check0(receiver.SetSessionState(b, []byte("half done"), nil))
	check0(receiver.Close(b))
	receiver = b.accept(queue, "a")
	equal(string(must(receiver.GetSessionState(b, nil))), "half done")
	check0(receiver.SetSessionState(b, nil, nil))
	equal(len(must(receiver.GetSessionState(b, nil))), 0)
}

func renewSessionLock(b *bench) {
	queue := b.sessionQueue()
	b.send(queue, inSession("a", "1"))
	receiver := b.accept(queue, "a")
	before := receiver.LockedUntil()
	advance(40 * time.Second)
	check0(receiver.RenewSessionLock(b, nil))
	expect(receiver.LockedUntil().Sub(before) > 30*time.Second, "%s became %s", before, receiver.LockedUntil())
	advance(40 * time.Second)
	equal(b.take(receiver, 1), []string{"1"})
}

func refuseReceiverWithoutSession(b *bench) {
	_, err := b.receiver(b.sessionQueue()).ReceiveMessages(b, 1, nil)
	failsWith(err, amqp.ErrCondNotAllowed)
}

// The deferred message stays: the SDK sends no session id when it receives by number, which the service requires.
func deferInSession(b *bench) {
	queue := b.sessionQueue()
	b.send(queue, inSession("a", "1"), inSession("a", "2"))
	receiver := b.accept(queue, "a")
	first := b.receiveOne(receiver)
	check0(receiver.DeferMessage(b, first, nil))
	equal(len(must(receiver.PeekMessages(b, 10, nil))), 2)
	check0(receiver.DeadLetterMessage(b, b.receiveOne(receiver), &sb.DeadLetterOptions{Reason: pointer("bad")}))
	b.holdsDead(queue, 1)
	options := &sb.PeekMessagesOptions{FromSequenceNumber: first.SequenceNumber}
	rest := must(receiver.PeekMessages(b, 10, options))
	equal(len(rest), 1)
	equal(rest[0].State, sb.MessageStateDeferred)
}

func listSessions(b *bench) {
	queue := b.sessionQueue()
	b.send(queue, inSession("with message", "1"))
	receiver := b.accept(queue, "with state")
	check0(receiver.SetSessionState(b, []byte("state"), nil))
	check0(receiver.Close(b))
	listed := func(options *sb.ListSessionsOptions) []string {
		found := []string{}
		for pager := b.client.NewListSessionsForQueuePager(queue, options); pager.More(); {
			found = append(found, must(pager.NextPage(b)).Sessions...)
		}
		slices.Sort(found)
		return found
	}
	equal(listed(nil), []string{"with message", "with state"})
	past := time.Now().Add(-time.Hour)
	equal(listed(&sb.ListSessionsOptions{SessionStateUpdatedAfter: &past}), []string{"with state"})
}
