// What JavaScript clients see of a sandbox: @azure/service-bus, which stands on rhea, and rhea by itself.
//
// node checks.mjs CONNECTION_STRING, beside a node_modules with both. Needs the entities that `paired sandbox` opens
// with: the queue orders, the session queue payments, the topic audit with its subscription all; all of them empty, and
// each check leaves them so. Prints one line of JSON for each check: {"check", "passed", "error"}.

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import rhea from "rhea";
import { ServiceBusClient } from "@azure/service-bus";

const PATIENCE = 30_000;
const SHORT = 2_000;
const connectionString = process.argv[2];
const settings = Object.fromEntries(
  connectionString.split(";").filter(Boolean).map((part) => part.split(/=(.*)/s).slice(0, 2)),
);
const endpoint = new URL(settings.Endpoint.replace("sb:", "http:"));
let written = 0;
const newId = () => `js-${process.pid}-${++written}`;

const checks = {
  async "what is sent is received, completed and gone"({ client }) {
    const sent = [newId(), newId(), newId()];
    await send(client, "orders", sent.map((messageId) => ({ messageId, body: messageId })));
    const receiver = client.createReceiver("orders");
    const got = await receiveAll(receiver, sent.length);
    assert.deepEqual(got.map((message) => message.body), sent);
    for (const message of got) await receiver.completeMessage(message);
    await nothingLeft(client, "orders");
  },

  async "properties come back in the types they were given"({ client }) {
    const message = {
      messageId: newId(),
      correlationId: "c-1",
      contentType: "application/json",
      subject: "s",
      to: "t",
      replyTo: "r",
      body: { a: [1, "two", null] },
      applicationProperties: { text: "ä", flag: true, number: 7, half: 0.5, when: new Date(1_700_000_000_000) },
    };
    await send(client, "orders", message);
    const [got] = await takeAndComplete(client, "orders", 1);
    for (const name of ["messageId", "correlationId", "contentType", "subject", "to", "replyTo", "body"]) {
      assert.deepEqual(got[name], message[name], name);
    }
    const { when, ...others } = got.applicationProperties;
    assert.deepEqual(others, { text: "ä", flag: true, number: 7, half: 0.5 });
    assert.equal(Number(when), 1_700_000_000_000);
    assert.equal(got.deliveryCount, 0);
    assert.ok(got.enqueuedTimeUtc instanceof Date);
    assert.ok(got.lockedUntilUtc > new Date());
    assert.match(got.lockToken, /^[0-9a-f-]{36}$/);
    assert.ok(got.sequenceNumber.toNumber() > 0);
  },

  async "an abandoned message comes again and has been counted"({ client }) {
    await send(client, "orders", { body: "again", messageId: newId() });
    const receiver = client.createReceiver("orders");
    const [first] = await receiveAll(receiver, 1);
    await receiver.abandonMessage(first, { why: "not now" });
    const [second] = await receiveAll(receiver, 1);
    assert.equal(second.deliveryCount, 1);
    assert.equal(second.applicationProperties.why, "not now");
    await receiver.completeMessage(second);
  },

  async "a dead-lettered message tells its reason"({ client }) {
    await send(client, "orders", { body: "bad", messageId: newId() });
    const receiver = client.createReceiver("orders");
    const [message] = await receiveAll(receiver, 1);
    await receiver.deadLetterMessage(message, { deadLetterReason: "broken", deadLetterErrorDescription: "in two" });
    const dead = client.createReceiver("orders", { subQueueType: "deadLetter" });
    const [buried] = await receiveAll(dead, 1);
    assert.equal(buried.deadLetterReason, "broken");
    assert.equal(buried.deadLetterErrorDescription, "in two");
    await dead.completeMessage(buried);
    await nothingLeft(client, "orders");
  },

  async "a deferred message is received by its number"({ client }) {
    await send(client, "orders", { body: "later", messageId: newId() });
    const receiver = client.createReceiver("orders");
    const [message] = await receiveAll(receiver, 1);
    await receiver.deferMessage(message);
    const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
    assert.equal(deferred.body, "later");
    assert.equal(deferred.state, "deferred");
    await receiver.completeMessage(deferred);
    await nothingLeft(client, "orders");
  },

  async "a peek shows messages and takes none"({ client }) {
    await send(client, "orders", [{ body: 1, messageId: newId() }, { body: 2, messageId: newId() }]);
    const receiver = client.createReceiver("orders");
    assert.deepEqual((await receiver.peekMessages(10)).map((message) => message.body), [1, 2]);
    assert.deepEqual((await takeAndComplete(client, "orders", 2)).map((message) => message.body), [1, 2]);
  },

  async "a scheduled message waits, and can be cancelled"({ client }) {
    const sender = client.createSender("orders");
    const messages = [{ body: "a", messageId: newId() }, { body: "b", messageId: newId() }];
    const numbers = await sender.scheduleMessages(messages, new Date(Date.now() + 3_600_000));
    const receiver = client.createReceiver("orders");
    assert.deepEqual((await receiver.peekMessages(10)).map((message) => message.state), ["scheduled", "scheduled"]);
    await sender.cancelScheduledMessages(numbers);
    await nothingLeft(client, "orders");
  },

  async "a lock is renewed"({ client }) {
    await send(client, "orders", { body: "long", messageId: newId() });
    const receiver = client.createReceiver("orders", { maxAutoLockRenewalDurationInMs: 0 });
    const [message] = await receiveAll(receiver, 1);
    const before = message.lockedUntilUtc;
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.ok((await receiver.renewMessageLock(message)) > before);
    await receiver.completeMessage(message);
  },

  async "what is received and deleted needs no completion"({ client }) {
    await send(client, "orders", [{ body: 1, messageId: newId() }, { body: 2, messageId: newId() }]);
    const receiver = client.createReceiver("orders", { receiveMode: "receiveAndDelete" });
    assert.equal((await receiveAll(receiver, 2)).length, 2);
    await nothingLeft(client, "orders");
  },

  async "a receiver that finds nothing is answered when it drains"({ client }) {
    const receiver = client.createReceiver("orders");
    const began = Date.now();
    assert.deepEqual(await receiver.receiveMessages(5, { maxWaitTimeInMs: 200 }), []);
    assert.ok(Date.now() - began < PATIENCE / 2);
  },

  async "a subscriber is handed messages as they come"({ client }) {
    const receiver = client.createReceiver("orders");
    const got = [];
    await new Promise((resolve, reject) => {
      receiver.subscribe({
        processMessage: async (message) => {
          got.push(message.body);
          if (got.length === 200) resolve();
        },
        processError: async ({ error }) => reject(error),
      }, { maxConcurrentCalls: 10 });
      send(client, "orders", Array.from({ length: 200 }, (_, body) => ({ body, messageId: newId() }))).catch(reject);
    });
    await receiver.close();
    assert.deepEqual([...got].sort((a, b) => a - b), Array.from({ length: 200 }, (_, body) => body));
    await nothingLeft(client, "orders");
  },

  async "a batch is filled to the link's limit"({ client }) {
    const sender = client.createSender("orders");
    const batch = await sender.createMessageBatch();
    assert.ok(batch.maxSizeInBytes >= 256 * 1024);
    while (batch.tryAddMessage({ body: Buffer.alloc(8192), messageId: newId() }));
    assert.ok(batch.count > 25);
    await sender.sendMessages(batch);
    assert.equal((await takeAndComplete(client, "orders", batch.count)).length, batch.count);
  },

  async "a message of several frames arrives whole"({ client }) {
    const body = Buffer.from(Array.from({ length: 200_000 }, (_, at) => at % 251));
    await send(client, "orders", { body, messageId: newId() });
    const [got] = await takeAndComplete(client, "orders", 1);
    assert.ok(Buffer.compare(got.body, body) === 0);
  },

  async "2,100 refused messages each throw, and the sender goes on"({ client }) {
    // rhea holds 2,048 deliveries of a session that are not settled on both sides
    const sender = client.createSender("payments");
    for (let each = 0; each < 2_100; each++) {
      await assert.rejects(sender.sendMessages({ body: "without a session" }), /session/);
    }
    const sessionId = newId();
    await sender.sendMessages({ body: "within one", sessionId });
    const receiver = await client.acceptSession("payments", sessionId);
    for (const message of await receiveAll(receiver, 1)) await receiver.completeMessage(message);
    await receiver.close();
    await sender.close();
  },

  async "a message that is too large is refused, and the sender goes on"({ client }) {
    const sender = client.createSender("orders");
    await assert.rejects(sender.sendMessages({ body: Buffer.alloc(400_000) }), { code: "MessageSizeExceeded" });
    await sender.sendMessages({ body: "small", messageId: newId() });
    assert.equal((await takeAndComplete(client, "orders", 1))[0].body, "small");
  },

  async "a session keeps its order, its state and its lock"({ client }) {
    const sessionId = newId();
    await send(client, "payments", [1, 2, 3].map((body) => ({ body, sessionId, messageId: newId() })));
    const session = await client.acceptSession("payments", sessionId);
    assert.equal(session.sessionId, sessionId);
    const before = session.sessionLockedUntilUtc;
    assert.ok(before > new Date());
    await session.setSessionState({ step: 2 });
    assert.deepEqual(await session.getSessionState(), { step: 2 });
    assert.ok((await session.renewSessionLock()) >= before);
    const got = await receiveAll(session, 3);
    assert.deepEqual(got.map((message) => message.body), [1, 2, 3]);
    for (const message of got) await session.completeMessage(message);
    await session.setSessionState(null);
    await session.close();
  },

  async "the next session is one that has messages"({ client }) {
    const sessionId = newId();
    await send(client, "payments", { body: "x", sessionId, messageId: newId() });
    const session = await client.acceptNextSession("payments");
    assert.equal(session.sessionId, sessionId);
    const [message] = await receiveAll(session, 1);
    await session.completeMessage(message);
    await session.close();
  },

  async "a session is held by one receiver"({ client }) {
    const sessionId = newId();
    const held = await client.acceptSession("payments", sessionId);
    const other = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0 } });
    try {
      await assert.rejects(other.acceptSession("payments", sessionId), { code: "SessionCannotBeLocked" });
    } finally {
      await other.close();
      await held.close();
    }
  },

  async "a topic hands a copy to its subscription"({ client }) {
    await send(client, "audit", { body: "seen", messageId: newId() });
    const receiver = client.createReceiver("audit", "all");
    const [message] = await receiveAll(receiver, 1);
    assert.equal(message.body, "seen");
    await receiver.completeMessage(message);
  },

  async "rules are added, listed and removed"({ client }) {
    const rules = client.createRuleManager("audit", "all");
    assert.deepEqual(await listed(rules), [{ name: "$Default", filter: { sqlExpression: "1=1" }, action: {} }]);
    await rules.createRule("large", { sqlExpression: "size > 10" }, { sqlExpression: "SET large = TRUE" });
    await rules.createRule("west", { subject: "w", applicationProperties: { region: "west", floor: 3 } });
    await rules.createRule("never", { sqlExpression: "1=0" });
    await assert.rejects(rules.createRule("west", { subject: "w" }), { code: "MessagingEntityAlreadyExists" });
    await assert.rejects(rules.createRule("wrong", { sqlExpression: "size >" }), { code: "GeneralError" });
    const [first, large, never, west] = await listed(rules);
    assert.equal(first.name, "$Default");
    assert.deepEqual(large, {
      name: "large",
      filter: { sqlExpression: "size > 10" },
      action: { sqlExpression: "SET large = TRUE" },
    });
    assert.equal(never.filter.sqlExpression, "1=0");
    assert.equal(west.filter.subject, "w");
    assert.deepEqual(west.filter.applicationProperties, { region: "west", floor: 3 });
    await rules.deleteRule("$Default");
    const messages = [5, 11].map((size) => ({ body: size, messageId: newId(), applicationProperties: { size } }));
    await send(client, "audit", messages);
    const receiver = client.createReceiver("audit", "all");
    const [taken] = await receiveAll(receiver, 1);
    assert.equal(taken.body, 11);
    assert.equal(taken.applicationProperties.large, true);
    await receiver.completeMessage(taken);
    assert.deepEqual(await receiver.peekMessages(5), []);
    for (const name of ["large", "never", "west"]) await rules.deleteRule(name);
    assert.deepEqual(await listed(rules), []);
    await rules.createRule("$Default", { sqlExpression: "1=1" });
    await assert.rejects(rules.deleteRule("large"), { code: "MessagingEntityNotFound" });
  },

  async "an entity that is missing is not found"({ client }) {
    await assert.rejects(send(client, "nowhere", { body: 1 }), { code: "MessagingEntityNotFound" });
  },

  async "a wrong key is not let in"() {
    const wrong = connectionString.replace(/SharedAccessKey=[^;]*/, `SharedAccessKey=${"A".repeat(43)}=`);
    const client = new ServiceBusClient(wrong, { retryOptions: { maxRetries: 0 } });
    try {
      await assert.rejects(send(client, "orders", { body: 1 }), { code: "UnauthorizedAccess" });
    } finally {
      await client.close();
    }
  },

  async "rhea: a link without a token is refused with a reason"({ connection }) {
    const sender = connection.open_sender("orders");
    const [context] = await event(sender, "sender_error");
    assert.equal(context.sender.error.condition, "amqp:unauthorized-access");
    assert.ok(context.sender.error.description);
  },

  async "rhea: its own link names, tags, outcomes and drain"({ connection }) {
    assert.equal(await putToken(connection, "orders"), 202);
    const sender = connection.open_sender("orders");
    await event(sender, "sendable");
    const accepted = event(sender, "accepted");
    sender.send({ message_id: newId(), body: "from rhea", application_properties: { n: 1 } });
    await accepted;
    const receiver = connection.open_receiver({ source: "orders", credit_window: 0, autoaccept: false });
    await event(receiver, "receiver_open");
    receiver.drain = true;
    receiver.add_credit(5);
    const drained = event(receiver, "receiver_drained");
    const [context] = await event(receiver, "message");
    assert.equal(context.message.body, "from rhea");
    assert.equal(context.message.delivery_annotations?.["x-opt-lock-token"] !== undefined, true);
    context.delivery.accept();
    await drained;
    assert.equal(receiver.credit, 0);
  },

  async "rhea: by user and password, without a token"() {
    const connection = rhea.create_container().connect({
      host: endpoint.hostname, port: Number(endpoint.port), reconnect: false,
      username: settings.SharedAccessKeyName, password: settings.SharedAccessKey,
    });
    try {
      await event(connection, "connection_open");
      const sender = connection.open_sender("orders");
      await event(sender, "sendable");
      const accepted = event(sender, "accepted");
      sender.send({ message_id: newId(), body: "by password" });
      await accepted;
      const receiver = connection.open_receiver("orders");
      const [context] = await event(receiver, "message");
      assert.equal(context.message.body, "by password");
    } finally {
      connection.close();
    }
  },

  async "rhea: a wrong password is refused"() {
    const connection = rhea.create_container().connect({
      host: endpoint.hostname, port: Number(endpoint.port), reconnect: false,
      username: settings.SharedAccessKeyName, password: "wrong",
    });
    const [context] = await event(connection, "connection_error");
    assert.match(String(context.error), /authenticat/i);
  },

  async "rhea: an identical flow does not take the credit away"({ connection, client }) {
    assert.equal(await putToken(connection, "orders"), 202);
    const receiver = connection.open_receiver({ source: "orders", credit_window: 0, autoaccept: true });
    await event(receiver, "receiver_open");
    receiver.add_credit(1);
    for (let repeated = 0; repeated < 2; repeated++) {
      await new Promise((resolve) => setImmediate(resolve)); // the flow before is on its way
      receiver.issue_flow = true;
      connection._register();
    }
    const arrived = event(receiver, "message");
    await send(client, "orders", { body: "once", messageId: newId() });
    assert.ok((await arrived)[0].message);
  },
};

async function listed(rules) {
  const found = [];
  for await (const rule of rules.listRules()) if (rule) found.push(rule); // of no rules the client makes one undefined
  return found;
}

async function send(client, entity, messages) {
  const sender = client.createSender(entity);
  try {
    await sender.sendMessages(messages);
  } finally {
    await sender.close();
  }
}

async function receiveAll(receiver, count) {
  const got = [];
  while (got.length < count) {
    const more = await receiver.receiveMessages(count - got.length, { maxWaitTimeInMs: PATIENCE / 3 });
    assert.ok(more.length > 0, `${got.length} of ${count} messages came`);
    got.push(...more);
  }
  return got;
}

async function takeAndComplete(client, entity, count) {
  const receiver = client.createReceiver(entity);
  const got = await receiveAll(receiver, count);
  await Promise.all(got.map((message) => receiver.completeMessage(message)));
  await receiver.close();
  return got;
}

async function nothingLeft(client, entity) {
  const receiver = client.createReceiver(entity);
  assert.deepEqual((await receiver.peekMessages(5)).map((message) => message.body), []);
  await receiver.close();
}

function event(emitter, name) {
  return new Promise((resolve) => emitter.once(name, (...given) => resolve(given)));
}

async function putToken(connection, entity) {
  const audience = `sb://${endpoint.host}/${entity}`;
  const expiry = Math.floor(Date.now() / 1000) + 3600;
  const signed = `${encodeURIComponent(audience)}\n${expiry}`;
  const signature = createHmac("sha256", settings.SharedAccessKey).update(signed).digest("base64");
  const fields = { sr: audience, sig: signature, se: expiry, skn: settings.SharedAccessKeyName };
  const token = Object.entries(fields).map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  const replies = connection.open_receiver({ source: "$cbs", name: newId() });
  const sender = connection.open_sender({ target: "$cbs" });
  await event(sender, "sendable");
  const replied = event(replies, "message");
  sender.send({
    message_id: newId(),
    reply_to: replies.name,
    application_properties: { operation: "put-token", type: "servicebus.windows.net:sastoken", name: audience },
    body: `SharedAccessSignature ${token}`,
  });
  return (await replied)[0].message.application_properties["status-code"];
}

async function run(name, check) {
  const client = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0, timeoutInMs: PATIENCE } });
  const connection = rhea.create_container().connect({
    host: endpoint.hostname,
    port: Number(endpoint.port),
    hostname: endpoint.hostname,
    username: "anonymous",
    reconnect: false,
    idle_time_out: 60_000,
  });
  connection.on("error", () => {});
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done within ${PATIENCE / 1000} s`)), PATIENCE);
  });
  try {
    await Promise.race([check({ client, connection }), late]);
    return { check: name, passed: true, error: null };
  } catch (error) {
    return { check: name, passed: false, error: `${error.code ?? error.name}: ${error.message}` };
  } finally {
    clearTimeout(timer);
    connection.close();
    await Promise.race([client.close().catch(() => {}), new Promise((resolve) => setTimeout(resolve, SHORT))]);
  }
}

for (const [name, check] of Object.entries(checks)) {
  process.stdout.write(`${JSON.stringify(await run(name, check))}\n`);
}
process.exit(0);
