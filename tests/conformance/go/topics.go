package main

import (
	"errors"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	sb "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func (b *bench) subscriber(topic, subscription string) *sb.Receiver {
	return must(b.client.NewReceiverForSubscription(topic, subscription, nil))
}

func manageQueue(b *bench) {
	name := b.queue(&admin.QueueProperties{LockDuration: pointer("PT45S"), MaxDeliveryCount: pointer(int32(7))})
	got := must(b.admin.GetQueue(b, name, nil))
	equal(*got.LockDuration, "PT45S")
	equal(*got.MaxDeliveryCount, int32(7))
	got.UserMetadata = pointer("mine <&>")
	equal(*must(b.admin.UpdateQueue(b, name, got.QueueProperties, nil)).UserMetadata, "mine <&>")
	other := b.queue(nil)
	listed := map[string]bool{}
	for pager := b.admin.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 1}); pager.More(); {
		for _, queue := range must(pager.NextPage(b)).Queues {
			listed[queue.QueueName] = true
		}
	}
	expect(listed[name] && listed[other], "listed are %v", listed)
	_, err := b.admin.CreateQueue(b, name, nil)
	expect(statusOf(err) == 409, "%v", err)
	must(b.admin.DeleteQueue(b, name, nil))
	gone, err := b.admin.GetQueue(b, name, nil)
	expect(err == nil && gone == nil, "%v", err)
}

func statusOf(err error) int {
	var known *azcore.ResponseError
	if errors.As(err, &known) {
		return known.StatusCode
	}
	return 0
}

func countMessages(b *bench) {
	queue := b.queue(nil)
	b.send(queue, text("one"), text("two"), text("three"))
	receiver := b.receiver(queue)
	check0(receiver.DeadLetterMessage(b, b.receiveOne(receiver), nil))
	got := must(b.admin.GetQueueRuntimeProperties(b, queue, nil))
	equal(got.TotalMessageCount, int64(3))
	equal(got.ActiveMessageCount, int32(2))
	equal(got.DeadLetterMessageCount, int32(1))
	expect(got.SizeInBytes > 0, "%d bytes", got.SizeInBytes)
}

func deliverToSubscriptions(b *bench) {
	topic := b.topic("first", "second")
	b.send(topic, text("news"))
	for _, subscription := range []string{"first", "second"} {
		equal(b.take(b.subscriber(topic, subscription), 1), []string{"news"})
	}
	counts := must(b.admin.GetTopicRuntimeProperties(b, topic, nil))
	equal(counts.SubscriptionCount, int32(2))
	equal(counts.SQLFilterCount, int32(2)) // with the default rules
}

func manageRules(b *bench) {
	topic := b.topic("all")
	sent := admin.RuleProperties{
		Name: "large",
		Filter: &admin.SQLFilter{
			Expression: "size > @limit AND colour = 'red'",
			Parameters: map[string]any{"@limit": int64(10)},
		},
		Action: &admin.SQLAction{Expression: "SET checked = TRUE"},
	}
	options := &admin.CreateRuleOptions{Name: &sent.Name, Filter: sent.Filter, Action: sent.Action}
	must(b.admin.CreateRule(b, topic, "all", options))
	equal(must(b.admin.GetRule(b, topic, "all", "large", nil)).RuleProperties, sent)
	sent.Filter = &admin.CorrelationFilter{
		Subject:               pointer("s"),
		SessionID:             pointer("a"),
		ApplicationProperties: map[string]any{"text": "t", "flag": true, "half": 0.5},
	}
	equal(must(b.admin.UpdateRule(b, topic, "all", sent)).RuleProperties, sent)
	must(b.admin.CreateRule(b, topic, "all", &admin.CreateRuleOptions{Name: pointer("no"), Filter: &admin.FalseFilter{}}))
	names := []string{}
	for pager := b.admin.NewListRulesPager(topic, "all", nil); pager.More(); {
		for _, rule := range must(pager.NextPage(b)).Rules {
			names = append(names, rule.Name)
		}
	}
	equal(strings.Join(names, " "), "$Default large no")
	must(b.admin.DeleteRule(b, topic, "all", "large", nil))
	gone, err := b.admin.GetRule(b, topic, "all", "large", nil)
	expect(err == nil && gone == nil, "%v", err)
}

func applyRules(b *bench) {
	topic := b.topic()
	rule := &admin.RuleProperties{
		Name:   "large",
		Filter: &admin.SQLFilter{Expression: "size > 10"},
		Action: &admin.SQLAction{Expression: "SET sys.Label = 'large'; SET twice = size * 2; REMOVE secret"},
	}
	properties := &admin.SubscriptionProperties{DefaultRule: rule}
	must(b.admin.CreateSubscription(b, topic, "large", &admin.CreateSubscriptionOptions{Properties: properties}))
	small, large := text("small"), text("large")
	small.ApplicationProperties = map[string]any{"size": int64(1)}
	large.ApplicationProperties = map[string]any{"size": int64(11), "secret": "s"}
	b.send(topic, small, large)
	receiver := b.subscriber(topic, "large")
	got := b.receiveOne(receiver)
	equal(string(got.Body), "large")
	equal(*got.Subject, "large")
	equal(got.ApplicationProperties, map[string]any{"size": int64(11), "twice": int64(22), "RuleName": "large"})
	check0(receiver.CompleteMessage(b, got, nil))
	b.nothing(receiver)
}

func forwardMessages(b *bench) {
	target := b.queue(nil)
	host, _, _ := strings.Cut(strings.TrimPrefix(clientsString, "Endpoint=sb://"), ";")
	address := "sb://" + strings.TrimSuffix(host, "/") + "/" + target
	source := b.queue(&admin.QueueProperties{ForwardTo: &address})
	equal(*must(b.admin.GetQueue(b, source, nil)).ForwardTo, address)
	b.send(source, text("onward"))
	equal(string(b.takeOne(target).Body), "onward")
}

func refuseMissingEntity(b *bench) {
	fails(b.sender("nowhere").SendMessage(b, text("lost"), nil), sb.CodeNotFound)
	_, err := b.receiver("nowhere").PeekMessages(b, 1, nil)
	fails(err, sb.CodeNotFound)
	_, err = b.admin.DeleteQueue(b, "nowhere", nil)
	expect(statusOf(err) == 404, "%v", err)
}

func refuseWrongKey(b *bench) {
	queue := b.queue(nil)
	client := b.connect(withWrongKey(sendersString), &sb.ClientOptions{RetryOptions: quick})
	sender := must(client.NewSender(queue, nil))
	fails(sender.SendMessage(b, text("forged"), nil), sb.CodeUnauthorizedAccess)
	_, err := must(admin.NewClientFromConnectionString(withWrongKey(connectionString), adminOptions())).GetQueue(b, queue, nil)
	expect(statusOf(err) == 401, "%v", err)
	b.holds(queue, 0, 0)
}

func withWrongKey(connectionString string) string {
	before, _, _ := strings.Cut(connectionString, "SharedAccessKey=")
	return before + "SharedAccessKey=d3Jvbmc=;UseDevelopmentEmulator=true"
}

func describeNamespace(b *bench) {
	got := must(b.admin.GetNamespaceProperties(b, nil))
	equal(got.Name, namespace)
	equal(got.SKU, "Standard")
}
