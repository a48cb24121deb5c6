// Programs on azservicebus: KEDA's reads, the administration client, and a sender with DefaultAzureCredential.
package main

import (
	"context"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

var connectionString = os.Getenv("SENDER_CONNECTION_STRING")

// keda makes the calls of KEDA's scaler azure-servicebus, with the limit of its HTTP client: 3 s.
func keda(entity string) Send {
	limited := &http.Client{Timeout: 3 * time.Second}
	options := &admin.ClientOptions{ClientOptions: policy.ClientOptions{Transport: limited}}
	client := must(admin.NewClientFromConnectionString(connectionString, options))
	return func(ctx context.Context, lane int, _ string) error {
		if lane%2 == 1 {
			_, err := client.GetSubscriptionRuntimeProperties(ctx, "audit", "all", nil)
			return err
		}
		_, err := client.GetQueueRuntimeProperties(ctx, entity, nil)
		return err
	}
}

// administration reads the entity in even lanes, and changes the queue of its own name in odd ones.
func administration(entity string) Send {
	client := must(admin.NewClientFromConnectionString(connectionString, nil))
	return func(ctx context.Context, lane int, id string) error {
		if lane%2 == 0 {
			_, err := client.GetQueueRuntimeProperties(ctx, entity, nil)
			return err
		}
		queue, err := client.GetQueue(ctx, os.Args[3], nil)
		if err != nil {
			return err
		}
		queue.UserMetadata = &id
		_, err = client.UpdateQueue(ctx, os.Args[3], queue.QueueProperties, nil)
		return err
	}
}

func identity(entity string) Send {
	host, _, _ := strings.Cut(strings.TrimPrefix(connectionString, "Endpoint=sb://"), "/")
	credential := must(azidentity.NewDefaultAzureCredential(nil))
	sender := must(must(azservicebus.NewClient(host, credential, nil)).NewSender(entity, nil))
	return func(ctx context.Context, _ int, id string) error {
		return sender.SendMessage(ctx, &azservicebus.Message{Body: []byte(id)}, nil)
	}
}

func main() {
	programs := map[string]func(string) Send{
		"keda": keda, "admin-go": administration, "identity-go": identity, "secret-go": identity,
	}
	runLanes(programs[os.Args[1]](os.Args[2]))
}
