package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"strings"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/go-amqp"
	"github.com/coder/websocket"
)

// azureName returns the connection string with the namespace's name in Azure, and the sandbox's address.
func azureName() (string, string) {
	_, address, _ := strings.Cut(connectionString, "sb://")
	address, rest, _ := strings.Cut(address, ";")
	rest = strings.TrimSuffix(rest, ";UseDevelopmentEmulator=true")
	return "Endpoint=sb://" + namespace + ".servicebus.windows.net/;" + rest, strings.TrimRight(address, "/")
}

// exchanges expects that a client sends, receives and renews a lock.
func (b *bench) exchanges(client *sb.Client, queue string) {
	b.client, b.sending = client, client
	b.send(queue, text("hello"))
	receiver := b.receiver(queue)
	message := b.receiveOne(receiver)
	check0(receiver.RenewMessageLock(b, message, nil))
	check0(receiver.CompleteMessage(b, message, nil))
	b.holds(queue, 0, 0)
}

// byPassword connects by SASL PLAIN, with the name of a key and the key, and puts no token.
func (b *bench) byPassword(key string) (*amqp.Conn, error) {
	fields := map[string]string{}
	for _, part := range strings.Split(clientsString, ";") {
		name, value, _ := strings.Cut(part, "=")
		fields[name] = value
	}
	if key == "" {
		key = fields["SharedAccessKey"]
	}
	address := strings.TrimRight(strings.Replace(fields["Endpoint"], "sb://", "amqp://", 1), "/")
	login := amqp.SASLTypePlain(fields["SharedAccessKeyName"], key)
	return amqp.Dial(b, address, &amqp.ConnOptions{SASLType: login})
}

func connectByPassword(b *bench) {
	queue := b.queue(nil)
	connection := must(b.byPassword(""))
	defer connection.Close()
	session := must(connection.NewSession(b, nil))
	sender := must(session.NewSender(b, queue, nil))
	check0(sender.Send(b, amqp.NewMessage([]byte("by password")), nil))
	receiver := must(session.NewReceiver(b, queue, nil))
	message := must(receiver.Receive(b, nil))
	expect(string(message.GetData()) == "by password", "another message came")
	check0(receiver.AcceptMessage(b, message))
}

func refuseWrongPassword(b *bench) {
	connection, err := b.byPassword("wrong")
	if err == nil {
		connection.Close()
	}
	expect(err != nil, "a wrong password was accepted")
}

func connectOverTLS(b *bench) {
	queue := b.queue(nil)
	name, address := azureName()
	options := &sb.ClientOptions{RetryOptions: quick, TLSConfig: trusting(), CustomEndpoint: address}
	b.exchanges(b.connect(name, options), queue)
}

func connectOverWebSocket(b *bench) {
	queue := b.queue(nil)
	name, address := azureName()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	browser := &http.Client{Transport: &http.Transport{DialContext: dial, TLSClientConfig: trusting()}}
	open := func(ctx context.Context, wanted sb.NewWebSocketConnArgs) (net.Conn, error) {
		options := &websocket.DialOptions{Subprotocols: []string{"amqp"}, HTTPClient: browser}
		socket, _, err := websocket.Dial(ctx, wanted.Host, options)
		if err != nil {
			return nil, err
		}
		return websocket.NetConn(context.Background(), socket, websocket.MessageBinary), nil
	}
	b.exchanges(b.connect(name, &sb.ClientOptions{RetryOptions: quick, NewWebSocketConn: open}), queue)
}

func refuseUntrusted(b *bench) {
	name, address := azureName()
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	once := sb.RetryOptions{MaxRetries: -1}
	client := b.connect(name, &sb.ClientOptions{RetryOptions: once, TLSConfig: config, CustomEndpoint: address})
	err := must(client.NewSender("orders", nil)).SendMessage(b, text("secret"), nil)
	fails(err, sb.CodeConnectionLost)
	expect(strings.Contains(err.Error(), "unknown authority"), "%v", err)
}
