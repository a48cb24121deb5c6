// The steps of the README of @azure/service-bus, in its order, with messages as plain as there: none has an id.
//
// node quickstart.mjs CONNECTION_STRING, beside a node_modules with the package. Needs the entities that `paired sandbox`
// opens with: the queue orders, the session queue payments, the topic audit with its subscription all; all of them empty.
// Prints one line of JSON for each step: {"check", "passed", "error"}. A step that fails ends the program, as it would
// end the reader's; so does an error that the package raises in the background.

import assert from "node:assert/strict";
import { ServiceBusClient } from "@azure/service-bus";

const QUEUE = "orders";
const SESSION_QUEUE = "payments";
const TOPIC = "audit";
const SUBSCRIPTION = "all";
const NAMES = ["Ada", "Emmy", "Grace", "Hedy", "Lise", "Mary", "Rosalind", "Sofja"];
const PATIENCE = 30_000;

const client = new ServiceBusClient(process.argv[2]);

async function sendMessages() {
  const sender = client.createSender(QUEUE);
  await sender.sendMessages({ body: NAMES[0] });
  await sender.sendMessages(NAMES.map((body) => ({ body })));
  const batch = await sender.createMessageBatch();
  for (const body of NAMES) assert.ok(batch.tryAddMessage({ body }));
  await sender.sendMessages(batch);
  await sender.close();
}

async function receiveAnArray() {
  const receiver = client.createReceiver(QUEUE);
  const messages = await receiver.receiveMessages(5);
  assert.deepEqual(messages.map(({ body }) => body), [NAMES[0], ...NAMES.slice(0, 4)]);
  for (const message of messages) await receiver.completeMessage(message);
  assert.equal(new Set(messages.map(({ messageId }) => messageId)).size, 5);
  await receiver.close();
}

async function subscribeWithAHandler() {
  const receiver = client.createReceiver(QUEUE);
  const bodies = [];
  await within(new Promise((resolve, reject) => {
    receiver.subscribe({
      processMessage: async ({ body }) => {
        bodies.push(body);
        if (bodies.length === 12) resolve();
      },
      processError: async ({ error }) => reject(error),
    });
  }));
  await receiver.close();
  assert.deepEqual(bodies, [...NAMES.slice(4), ...NAMES]);
}

async function iterate() {
  const sender = client.createSender(QUEUE);
  await sender.sendMessages(NAMES.map((body) => ({ body })));
  const receiver = client.createReceiver(QUEUE);
  const bodies = [];
  for await (const message of receiver.getMessageIterator()) {
    bodies.push(message.body);
    await receiver.completeMessage(message);
    if (bodies.length === NAMES.length) break;
  }
  await Promise.all([sender.close(), receiver.close()]);
  assert.deepEqual(bodies, NAMES);
}

async function peek() {
  const sender = client.createSender(QUEUE);
  await sender.sendMessages(NAMES.map((body) => ({ body })));
  const receiver = client.createReceiver(QUEUE);
  const messages = await receiver.peekMessages(3);
  assert.deepEqual(messages.map(({ body }) => body), NAMES.slice(0, 3));
  await Promise.all([sender.close(), receiver.close()]);
}

async function settleInEachWay() {
  const receiver = client.createReceiver(QUEUE);
  const [first, second, third, fourth] = await receiver.receiveMessages(4);
  await receiver.completeMessage(first);
  await receiver.abandonMessage(second);
  await receiver.deferMessage(third);
  await receiver.deadLetterMessage(fourth);
  const [deferred] = await receiver.receiveDeferredMessages(third.sequenceNumber);
  assert.equal(deferred.messageId, third.messageId);
  await receiver.completeMessage(deferred);
  const left = await receiver.receiveMessages(5);
  assert.deepEqual(left.map(({ body }) => body), [NAMES[1], ...NAMES.slice(4)]);
  for (const message of left) await receiver.completeMessage(message);
  await receiver.close();
}

async function readTheDeadLetters() {
  const receiver = client.createReceiver(QUEUE, { subQueueType: "deadLetter" });
  const messages = await receiver.receiveMessages(5);
  assert.deepEqual(messages.map(({ body }) => body), [NAMES[3]]);
  await receiver.completeMessage(messages[0]);
  await receiver.close();
}

async function readTheDeadLettersOfASubscription() {
  const sender = client.createSender(TOPIC);
  await sender.sendMessages({ body: "event" });
  const receiver = client.createReceiver(TOPIC, SUBSCRIPTION);
  const [message] = await receiver.receiveMessages(1);
  await receiver.deadLetterMessage(message);
  const dead = client.createReceiver(TOPIC, SUBSCRIPTION, { subQueueType: "deadLetter" });
  const [found] = await dead.receiveMessages(5);
  assert.equal(found.messageId, message.messageId);
  await dead.completeMessage(found);
  await Promise.all([sender.close(), receiver.close(), dead.close()]);
}

async function useSessions() {
  const sender = client.createSender(SESSION_QUEUE);
  await sender.sendMessages({ body: "of the first", sessionId: "first" });
  await sender.sendMessages({ body: "of the second", sessionId: "second" });
  const named = await client.acceptSession(SESSION_QUEUE, "first");
  const next = await client.acceptNextSession(SESSION_QUEUE);
  assert.equal(next.sessionId, "second");
  for (const receiver of [named, next]) {
    const [message] = await receiver.receiveMessages(1);
    assert.equal(message.body, `of the ${receiver.sessionId}`);
    await receiver.completeMessage(message);
    await receiver.close();
  }
  await sender.close();
}

async function within(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done within ${PATIENCE / 1000} s`)), PATIENCE);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

const steps = {
  "quick start: send one, a list and a batch": sendMessages,
  "quick start: receive an array of messages": receiveAnArray,
  "quick start: subscribe with a handler, then close": subscribeWithAHandler,
  "quick start: iterate over messages": iterate,
  "quick start: peek": peek,
  "quick start: complete, abandon, defer and dead-letter": settleInEachWay,
  "quick start: read the dead letters of a queue": readTheDeadLetters,
  "quick start: read the dead letters of a subscription": readTheDeadLettersOfASubscription,
  "quick start: send to a session and receive from it": useSessions,
  "quick start: close": () => client.close(),
};

for (const [check, step] of Object.entries(steps)) {
  try {
    await within(step());
    process.stdout.write(`${JSON.stringify({ check, passed: true, error: null })}\n`);
  } catch (error) {
    process.stdout.write(`${JSON.stringify({ check, passed: false, error: `${error.name}: ${error.message}` })}\n`);
    process.exit(0);
  }
}
