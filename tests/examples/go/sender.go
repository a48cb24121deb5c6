// Command sender is a sender in Go that knows of no gateway, pairing or outage: azservicebus with all its defaults.
//
// sender ENTITY PREFIX LANES PAUSE_MS, with the connection string in SENDER_CONNECTION_STRING; the end of standard
// input ends it. python_sender.py tells what it prints.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

var (
	ending  atomic.Bool
	sender  *sb.Sender
	prefix  string
	writing sync.Mutex
)

func main() {
	lanes, pause := number(os.Args[3]), time.Duration(number(os.Args[4]))*time.Millisecond
	prefix = os.Args[2]
	client, err := sb.NewClientFromConnectionString(os.Getenv("SENDER_CONNECTION_STRING"), nil)
	if err == nil {
		sender, err = client.NewSender(os.Args[1], nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var group sync.WaitGroup
	for lane := range lanes {
		group.Add(1)
		go func() {
			defer group.Done()
			run(lane, pause)
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	ending.Store(true)
	group.Wait()
	say("ended")
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

func run(lane int, pause time.Duration) {
	for count := 0; !ending.Load(); count++ {
		id := fmt.Sprintf("%s-%d-%d", prefix, lane, count)
		if count%10 == 9 {
			send(id+"a", id+"b", id+"c")
		} else {
			send(id)
		}
		time.Sleep(pause)
	}
}

func send(ids ...string) {
	for _, id := range ids {
		say("begun", id)
	}
	begun := time.Now()
	err := sendMessages(context.Background(), ids)
	for _, id := range ids {
		if err == nil {
			say("accepted", id, fmt.Sprintf("%.1f", float64(time.Since(begun).Microseconds())/1000))
		} else {
			say("failed", id, describe(err))
		}
	}
}

func sendMessages(ctx context.Context, ids []string) error {
	if len(ids) == 1 {
		return sender.SendMessage(ctx, message(ids[0]), nil)
	}
	batch, err := sender.NewMessageBatch(ctx, nil)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := batch.AddMessage(message(id), nil); err != nil {
			return err
		}
	}
	return sender.SendMessageBatch(ctx, batch, nil)
}

func message(id string) *sb.Message {
	return &sb.Message{MessageID: &id, Subject: &prefix, Body: []byte(strings.Repeat("x", 1000))}
}

func describe(err error) string {
	name := fmt.Sprintf("%T", err)
	var known *sb.Error
	if errors.As(err, &known) {
		name = string(known.Code)
	}
	text := strings.Join(strings.Fields(name+": "+err.Error()), " ")
	return text[:min(len(text), 300)]
}

func say(words ...string) {
	writing.Lock()
	defer writing.Unlock()
	fmt.Println(strings.Join(words, "\t"))
}
