// A sender on Dapr's component pubsub.azure.servicebus.queues with its default settings.
package main

import (
	"context"
	"os"

	"github.com/dapr/components-contrib/metadata"
	"github.com/dapr/components-contrib/pubsub"
	"github.com/dapr/components-contrib/pubsub/azure/servicebus/queues"
	"github.com/dapr/kit/logger"
)

func main() {
	logs := logger.NewLogger("dapr")
	logs.SetOutput(os.Stderr)
	component := queues.NewAzureServiceBusQueues(logs)
	settings := map[string]string{"connectionString": os.Getenv("SENDER_CONNECTION_STRING"), "consumerID": "sender"}
	err := component.Init(context.Background(), pubsub.Metadata{Base: metadata.Base{Properties: settings}})
	must(component, err)
	runLanes(func(ctx context.Context, _ int, id string) error {
		return component.Publish(ctx, &pubsub.PublishRequest{Topic: os.Args[2], Data: []byte(id)})
	})
}
