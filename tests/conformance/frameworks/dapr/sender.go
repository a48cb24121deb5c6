// A sender on Dapr's component pubsub.azure.servicebus.queues with its default settings; lines as python_sender.py's.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dapr/components-contrib/metadata"
	"github.com/dapr/components-contrib/pubsub"
	"github.com/dapr/components-contrib/pubsub/azure/servicebus/queues"
	"github.com/dapr/kit/logger"
)

var ending atomic.Bool
var speaking sync.Mutex

func say(words ...string) {
	speaking.Lock()
	defer speaking.Unlock()
	fmt.Println(strings.Join(words, "\t"))
}

func run(component pubsub.PubSub, entity string, name string, pause time.Duration) {
	for number := 0; !ending.Load(); number++ {
		id, begun := fmt.Sprintf("%s-%d", name, number), time.Now()
		say("begun", id)
		err := component.Publish(context.Background(), &pubsub.PublishRequest{Topic: entity, Data: []byte(id)})
		if err != nil {
			say("failed", id, strings.Join(strings.Fields(err.Error()), " "))
		} else {
			say("accepted", id, fmt.Sprintf("%.1f", float64(time.Since(begun).Microseconds())/1000))
		}
		time.Sleep(pause)
	}
}

func main() {
	logs := logger.NewLogger("dapr")
	logs.SetOutput(os.Stderr)
	component := queues.NewAzureServiceBusQueues(logs)
	settings := map[string]string{"connectionString": os.Getenv("SENDER_CONNECTION_STRING"), "consumerID": "sender"}
	err := component.Init(context.Background(), pubsub.Metadata{Base: metadata.Base{Properties: settings}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lanes, _ := strconv.Atoi(os.Args[3])
	pause, _ := strconv.Atoi(os.Args[4])
	var group sync.WaitGroup
	for lane := range lanes {
		group.Go(func() {
			run(component, os.Args[1], fmt.Sprintf("%s-%d", os.Args[2], lane), time.Duration(pause)*time.Millisecond)
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	ending.Store(true)
	group.Wait()
	say("ended")
}
