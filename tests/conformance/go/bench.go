package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"
)

const (
	patience = 15 * time.Second
	silence  = 300 * time.Millisecond // long enough for a message that is there
)

// quick retries as the SDK does by default, without its seconds of delay.
var quick = sb.RetryOptions{MaxRetries: 8, RetryDelay: 20 * time.Millisecond, MaxRetryDelay: 250 * time.Millisecond}

var (
	connectionString = os.Getenv("SANDBOX_CONNECTION_STRING")
	sendersString    = instead("SANDBOX_SENDERS")
	clientsString    = instead("SANDBOX_CLIENTS")
	namespace        = os.Getenv("SANDBOX_NAMESPACE")
	control          = os.Getenv("SANDBOX_CONTROL")
	numbered         atomic.Int64
)

// bench is what a check works with: clients, and entities of its own. The clean-up runs in reverse order.
type bench struct {
	context.Context
	client  *sb.Client
	sending *sb.Client // the same, unless senders alone go through a gateway
	admin   *admin.Client
	cleanup []func()
}

// instead returns the connection string of a gateway where one is given, else the namespace's own.
func instead(variable string) string {
	if text := os.Getenv(variable); text != "" {
		return text
	}
	return os.Getenv("SANDBOX_CONNECTION_STRING")
}

// expectation is the panic of a check that fails.
type expectation string

func newBench(check string) *bench {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	b := &bench{Context: ctx, cleanup: []func(){cancel}}
	b.connectBoth()
	b.admin = must(admin.NewClientFromConnectionString(clientsString, adminOptions()))
	return b
}

func (b *bench) close() {
	for index := len(b.cleanup) - 1; index >= 0; index-- {
		b.cleanup[index]()
	}
}

// connectBoth opens the clients that checks use when they say nothing else.
func (b *bench) connectBoth() {
	b.client = b.connect(clientsString, &sb.ClientOptions{RetryOptions: quick})
	b.sending = b.client
	if sendersString != clientsString {
		b.sending = b.connect(sendersString, &sb.ClientOptions{RetryOptions: quick})
	}
}

// connect opens a client that ends with the check.
func (b *bench) connect(connectionString string, options *sb.ClientOptions) *sb.Client {
	client := must(sb.NewClientFromConnectionString(connectionString, options))
	b.cleanup = append(b.cleanup, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = client.Close(ctx) // a fault may have cut it off
	})
	return client
}

func adminOptions() *admin.ClientOptions {
	options := &admin.ClientOptions{}
	options.Transport = &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(), DisableKeepAlives: true}}
	options.Retry = policy.RetryOptions{MaxRetries: 3, RetryDelay: 20 * time.Millisecond}
	return options
}

// trusting returns a configuration that trusts the sandbox's authority alone.
func trusting() *tls.Config {
	authorities := x509.NewCertPool()
	expect(authorities.AppendCertsFromPEM(must(os.ReadFile(os.Getenv("SANDBOX_CA")))), "the CA file has no certificate")
	return &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}
}

// ---------------------------------------------------------------- entities

func newName() string { return fmt.Sprintf("go-%d", numbered.Add(1)) }

// queue creates an empty queue that is deleted after the check; nil for default properties.
func (b *bench) queue(properties *admin.QueueProperties) string {
	name := newName()
	must(b.admin.CreateQueue(b, name, &admin.CreateQueueOptions{Properties: properties}))
	b.cleanup = append(b.cleanup, func() { _, _ = b.admin.DeleteQueue(context.Background(), name, nil) })
	return name
}

func (b *bench) sessionQueue() string {
	return b.queue(&admin.QueueProperties{RequiresSession: pointer(true)})
}

func (b *bench) topic(subscriptions ...string) string {
	name := newName()
	must(b.admin.CreateTopic(b, name, nil))
	b.cleanup = append(b.cleanup, func() { _, _ = b.admin.DeleteTopic(context.Background(), name, nil) })
	for _, subscription := range subscriptions {
		must(b.admin.CreateSubscription(b, name, subscription, nil))
	}
	return name
}

// ---------------------------------------------------------------- messages

func text(body string) *sb.Message { return &sb.Message{Body: []byte(body), MessageID: pointer(body)} }

func (b *bench) sender(entity string) *sb.Sender { return must(b.sending.NewSender(entity, nil)) }

func (b *bench) receiver(queue string) *sb.Receiver {
	return must(b.client.NewReceiverForQueue(queue, nil))
}

func (b *bench) send(entity string, messages ...*sb.Message) {
	sender := b.sender(entity)
	for _, message := range messages {
		check0(sender.SendMessage(b, message, nil))
	}
	check0(sender.Close(b))
}

// source is a receiver with or without a session.
type source interface {
	ReceiveMessages(context.Context, int, *sb.ReceiveMessagesOptions) ([]*sb.ReceivedMessage, error)
	CompleteMessage(context.Context, *sb.ReceivedMessage, *sb.CompleteMessageOptions) error
}

// receive returns exactly `count` messages.
func (b *bench) receive(from source, count int) []*sb.ReceivedMessage {
	var received []*sb.ReceivedMessage
	for len(received) < count {
		received = append(received, must(from.ReceiveMessages(b, count-len(received), nil))...)
	}
	return received
}

func (b *bench) receiveOne(from source) *sb.ReceivedMessage { return b.receive(from, 1)[0] }

// take receives and completes exactly `count` messages and returns their bodies.
func (b *bench) take(from source, count int) []string {
	bodies := []string{}
	for _, message := range b.receive(from, count) {
		bodies = append(bodies, string(message.Body))
		check0(from.CompleteMessage(b, message, nil))
	}
	return bodies
}

// takeOne returns a queue's next message, completed.
func (b *bench) takeOne(queue string) *sb.ReceivedMessage {
	receiver := b.receiver(queue)
	message := b.receiveOne(receiver)
	check0(receiver.CompleteMessage(b, message, nil))
	check0(receiver.Close(b))
	return message
}

// nothing expects that no message arrives for a while.
func (b *bench) nothing(from source) {
	ctx, cancel := context.WithTimeout(b, silence)
	defer cancel()
	messages, err := from.ReceiveMessages(ctx, 1, nil)
	equal(len(messages), 0)
	expect(errors.Is(err, context.DeadlineExceeded), "instead of silence: %v", err)
}

// holds expects this number of messages in a queue or subqueue, locked ones included.
func (b *bench) holds(queue string, subQueue sb.SubQueue, count int) {
	receiver := must(b.client.NewReceiverForQueue(queue, &sb.ReceiverOptions{SubQueue: subQueue}))
	equal(len(must(receiver.PeekMessages(b, 100, nil))), count)
	check0(receiver.Close(b))
}

// holdsDead expects this number of dead-lettered messages.
func (b *bench) holdsDead(queue string, count int) { b.holds(queue, sb.SubQueueDeadLetter, count) }

func (b *bench) dead(queue string) *sb.Receiver {
	return must(b.client.NewReceiverForQueue(queue, &sb.ReceiverOptions{SubQueue: sb.SubQueueDeadLetter}))
}

// ---------------------------------------------------------------- the control URL

type terms map[string]any

// fault begins a fault and returns its end; at the latest it ends with the check.
func (b *bench) fault(kind string, limits terms) func() {
	wanted := terms{"namespace": namespace, "fault": kind}
	for name, value := range limits {
		wanted[name] = value
	}
	var begun struct{ ID string }
	check0(json.Unmarshal(request(http.MethodPost, "/faults", wanted), &begun))
	end := func() { request(http.MethodDelete, "/faults/"+begun.ID, nil) }
	b.cleanup = append(b.cleanup, end)
	return end
}

// advance makes everything in the sandbox older.
func advance(by time.Duration) { request(http.MethodPost, "/clock", terms{"advance_s": by.Seconds()}) }

func request(method, path string, body terms) []byte {
	asked := must(http.NewRequest(method, strings.TrimRight(control, "/")+path, bytes.NewReader(must(json.Marshal(body)))))
	asked.Header.Set("Content-Type", "application/json")
	answer := must(http.DefaultClient.Do(asked))
	defer answer.Body.Close()
	content := must(io.ReadAll(answer.Body))
	over := method == http.MethodDelete && answer.StatusCode == http.StatusNotFound // it ended by itself
	expect(over || answer.StatusCode < 300, "%s %s: %s", method, path, content)
	return content
}

// ---------------------------------------------------------------- expectations

func pointer[T any](value T) *T { return &value }

// expect fails the check with the place in the source.
func expect(holds bool, format string, arguments ...any) {
	if !holds {
		panic(expectation(place() + fmt.Sprintf(format, arguments...)))
	}
}

func equal(got, wanted any) {
	expect(reflect.DeepEqual(got, wanted), "got %#v, wanted %#v", got, wanted)
}

func check0(err error) { expect(err == nil, "%v", err) }

func must[T any](value T, err error) T {
	check0(err)
	return value
}

// fails expects an error with this code of the SDK.
func fails(err error, code sb.Code) {
	var known *sb.Error
	expect(errors.As(err, &known) && known.Code == code, "instead of code %s: %v", code, err)
}

// failsWith expects an error with this AMQP condition.
func failsWith(err error, condition amqp.ErrCond) {
	var known *amqp.Error
	expect(errors.As(err, &known) && known.Condition == condition, "instead of %s: %v", condition, err)
}

// place returns the line of the check that failed, without the functions of this file.
func place() string {
	for depth := 1; ; depth++ {
		_, file, line, ok := runtime.Caller(depth)
		if !ok {
			return ""
		}
		if name := filepath.Base(file); name != "bench.go" && strings.HasSuffix(name, ".go") {
			return fmt.Sprintf("%s:%d: ", name, line)
		}
	}
}
