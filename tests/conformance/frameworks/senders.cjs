// Programs on Node.js: node senders.cjs PROGRAM ENTITY PREFIX LANES PAUSE_MS; lines as python_sender.py's.

const [program, entity, prefix, lanes, pause] = process.argv.slice(2);
const string = process.env.SENDER_CONNECTION_STRING;
let ending = false;

function nestjs() {
  require("reflect-metadata");
  const { firstValueFrom } = require("rxjs");
  const { AzureServiceBusClient } = require("nestjs-azure-service-bus-transporter");
  const client = new AzureServiceBusClient({ connectionString: string });
  return (id) =>
    firstValueFrom(client.emit({ name: entity, options: {} }, { body: { id } }), { defaultValue: null });
}

// Even lanes read the entity, odd ones change the queue of its own name.
function administration() {
  const { ServiceBusAdministrationClient } = require("@azure/service-bus");
  const admin = new ServiceBusAdministrationClient(string);
  return async (id, lane) =>
    lane % 2 === 0
      ? admin.getQueueRuntimeProperties(entity)
      : admin.updateQueue({ ...(await admin.getQueue(prefix)), userMetadata: id });
}

function identity() {
  const { DefaultAzureCredential } = require("@azure/identity");
  const { ServiceBusClient } = require("@azure/service-bus");
  const host = string.split("sb://")[1].split("/")[0];
  const sender = new ServiceBusClient(host, new DefaultAzureCredential()).createSender(entity);
  return (id) => sender.sendMessages({ body: id });
}

const PROGRAMS = {
  nestjs, "admin-javascript": administration, "identity-javascript": identity, "secret-javascript": identity,
};
const say = (...words) => process.stdout.write(`${words.join("\t")}\n`);

async function run(send, lane) {
  for (let number = 0; !ending; number++) {
    const id = `${prefix}-${lane}-${number}`;
    const begun = performance.now();
    say("begun", id);
    try {
      await send(id, lane);
      say("accepted", id, (performance.now() - begun).toFixed(1));
    } catch (error) {
      say("failed", id, `${error.code ?? error.name}: ${error.message}`.replace(/\s+/g, " ").slice(0, 300));
    }
    await new Promise((resolve) => setTimeout(resolve, Number(pause)));
  }
}

process.stdin.on("end", () => { ending = true; });
process.stdin.resume();
const send = PROGRAMS[program]();
Promise.all(Array.from({ length: Number(lanes) }, (_, lane) => run(send, lane))).then(() => {
  say("ended");
  process.exit(0);
});
