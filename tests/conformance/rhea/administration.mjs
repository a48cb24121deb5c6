// Every call of @azure/service-bus's administration client, at a sandbox or a gateway: what is created, read, changed,
// listed, gone.
//
// node administration.mjs CONNECTION_STRING, beside a node_modules with it; NODE_EXTRA_CA_CERTS names the authority.
// Leaves the namespace as it was. Prints one line of JSON for each check: {"check", "passed", "error"}.

import assert from "node:assert/strict";
import { ServiceBusAdministrationClient } from "@azure/service-bus";

const PATIENCE = 60_000;
const admin = new ServiceBusAdministrationClient(process.argv[2]);
const listed = async (pages, name) => {
  const names = [];
  for await (const one of pages) names.push(one[name]);
  return names;
};
const missing = (call) => assert.rejects(call, (error) => error.code === "MessageEntityNotFoundError");

const checks = {
  async "a namespace has a name and a tier"() {
    const found = await admin.getNamespaceProperties();
    assert.ok(found.name);
    assert.equal(found.messagingSku, "Standard");
  },

  async "a queue is created, read, changed, listed and deleted"() {
    await admin.createQueue("js-queue", { forwardTo: "orders", maxDeliveryCount: 3 });
    const queue = await admin.getQueue("js-queue");
    assert.equal(queue.maxDeliveryCount, 3);
    assert.ok(queue.forwardTo.endsWith("/orders"));
    assert.equal((await admin.updateQueue({ ...queue, maxDeliveryCount: 5 })).maxDeliveryCount, 5);
    assert.ok(await admin.queueExists("js-queue"));
    assert.ok((await listed(admin.listQueues(), "name")).includes("js-queue"));
    assert.equal((await admin.getQueueRuntimeProperties("js-queue")).totalMessageCount, 0);
    assert.ok((await listed(admin.listQueuesRuntimeProperties(), "name")).includes("js-queue"));
    await admin.deleteQueue("js-queue");
    assert.equal(await admin.queueExists("js-queue"), false);
    await missing(() => admin.getQueue("js-queue"));
  },

  async "a topic and a subscription are created, read, changed, listed and deleted"() {
    const topic = await admin.createTopic("js-topic", { maxSizeInMegabytes: 2048 });
    assert.equal(topic.maxSizeInMegabytes, 2048);
    assert.equal((await admin.updateTopic({ ...topic, userMetadata: "ours" })).userMetadata, "ours");
    const subscription = await admin.createSubscription("js-topic", "js", { lockDuration: "PT30S" });
    assert.equal(subscription.lockDuration, "PT30S");
    const changed = await admin.updateSubscription({ ...subscription, maxDeliveryCount: 2 });
    assert.equal((await admin.getSubscription("js-topic", "js")).maxDeliveryCount, changed.maxDeliveryCount);
    assert.ok(await admin.topicExists("js-topic"));
    assert.ok(await admin.subscriptionExists("js-topic", "js"));
    assert.ok((await listed(admin.listTopics(), "name")).includes("js-topic"));
    assert.deepEqual(await listed(admin.listSubscriptions("js-topic"), "subscriptionName"), ["js"]);
    assert.equal((await admin.getTopicRuntimeProperties("js-topic")).subscriptionCount, 1);
    assert.equal((await admin.getSubscriptionRuntimeProperties("js-topic", "js")).totalMessageCount, 0);
    assert.ok((await listed(admin.listTopicsRuntimeProperties(), "name")).includes("js-topic"));
    assert.deepEqual(await listed(admin.listSubscriptionsRuntimeProperties("js-topic"), "subscriptionName"), ["js"]);
    await admin.deleteSubscription("js-topic", "js");
    await missing(() => admin.getSubscription("js-topic", "js"));
    await admin.deleteTopic("js-topic");
    assert.equal(await admin.topicExists("js-topic"), false);
  },

  async "rules keep filters and actions in their types"() {
    const when = new Date(Date.UTC(2001, 0, 1));
    await admin.createTopic("js-rules");
    const first = { name: "first", filter: { correlationId: "c" } };
    await admin.createSubscription("js-rules", "js", { defaultRuleOptions: first });
    assert.equal((await admin.getRule("js-rules", "js", "first")).filter.correlationId, "c");
    await admin.createRule("js-rules", "js", "typed", { applicationProperties: { when, five: 5, yes: true, text: "x" } });
    assert.deepEqual((await admin.getRule("js-rules", "js", "typed")).filter.applicationProperties, {
      when, five: 5, yes: true, text: "x",
    });
    const sql = { sqlExpression: "size > @least", sqlParameters: { "@least": 7 } };
    await admin.createRule("js-rules", "js", "sql", sql, { sqlExpression: "SET size = 1" });
    const rule = await admin.getRule("js-rules", "js", "sql");
    assert.equal(rule.filter.sqlExpression, sql.sqlExpression);
    assert.equal(rule.action.sqlExpression, "SET size = 1");
    const changed = await admin.updateRule("js-rules", "js", { ...rule, filter: { sqlExpression: "size > 8" } });
    assert.equal(changed.filter.sqlExpression, "size > 8");
    assert.ok(await admin.ruleExists("js-rules", "js", "sql"));
    assert.ok((await listed(admin.listRules("js-rules", "js"), "name")).includes("typed"));
    await admin.deleteRule("js-rules", "js", "sql");
    assert.equal(await admin.ruleExists("js-rules", "js", "sql"), false);
    await admin.deleteTopic("js-rules");
  },

  async "an entity that exists is refused as the service refuses it"() {
    await assert.rejects(
      () => admin.createQueue("orders"),
      (error) => error.statusCode === 409 && error.code === "MessageEntityAlreadyExistsError",
    );
  },
};

for (const [check, act] of Object.entries(checks)) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done within ${PATIENCE / 1000} s`)), PATIENCE);
  });
  try {
    await Promise.race([act(), late]);
    process.stdout.write(`${JSON.stringify({ check, passed: true, error: null })}\n`);
  } catch (error) {
    const text = `${error.statusCode ?? error.name} ${error.code ?? ""}: ${error.message}`;
    process.stdout.write(`${JSON.stringify({ check, passed: false, error: text })}\n`);
  } finally {
    clearTimeout(timer);
  }
}
process.exit(0);
