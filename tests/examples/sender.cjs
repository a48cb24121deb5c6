// A sender in JavaScript that knows of no gateway, pairing or outage: @azure/service-bus with all its defaults.
//
// node sender.cjs ENTITY PREFIX LANES PAUSE_MS, with the connection string in SENDER_CONNECTION_STRING; the end of
// standard input ends it. python_sender.py tells what it prints.

const { ServiceBusClient } = require("@azure/service-bus");

const [entity, prefix, lanes, pause] = process.argv.slice(2);
const client = new ServiceBusClient(process.env.SENDER_CONNECTION_STRING);
const sender = client.createSender(entity);
let ending = false;

const say = (...words) => process.stdout.write(`${words.join("\t")}\n`);
const oneLine = (error) => `${error.code ?? error.name}: ${error.message}`.replace(/\s+/g, " ").slice(0, 300);

async function send(ids) {
  for (const id of ids) say("begun", id);
  const begun = performance.now();
  const messages = ids.map((messageId) => ({ messageId, body: "x".repeat(1000), subject: prefix }));
  try {
    await sender.sendMessages(messages.length === 1 ? messages[0] : messages);
    const took = (performance.now() - begun).toFixed(1);
    for (const id of ids) say("accepted", id, took);
  } catch (error) {
    for (const id of ids) say("failed", id, oneLine(error));
  }
}

async function run(lane) {
  for (let number = 0; !ending; number++) {
    const id = `${prefix}-${lane}-${number}`;
    await send(number % 10 === 9 ? [`${id}a`, `${id}b`, `${id}c`] : [id]);
    await new Promise((resolve) => setTimeout(resolve, Number(pause)));
  }
}

async function main() {
  process.stdin.on("end", () => { ending = true; });
  process.stdin.resume();
  await Promise.all(Array.from({ length: Number(lanes) }, (_, lane) => run(lane)));
  say("ended");
  await client.close();
  process.exit(0);
}

main();
