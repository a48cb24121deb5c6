// A sender on NestJS: node nestjs.cjs ENTITY PREFIX LANES PAUSE_MS; lines as python_sender.py's.

require("reflect-metadata");
const { firstValueFrom } = require("rxjs");
const { AzureServiceBusClient } = require("nestjs-azure-service-bus-transporter");

const [entity, prefix, lanes, pause] = process.argv.slice(2);
const client = new AzureServiceBusClient({ connectionString: process.env.SENDER_CONNECTION_STRING });
let ending = false;

const say = (...words) => process.stdout.write(`${words.join("\t")}\n`);

async function run(lane) {
  for (let number = 0; !ending; number++) {
    const id = `${prefix}-${lane}-${number}`;
    const begun = performance.now();
    say("begun", id);
    try {
      await firstValueFrom(client.emit({ name: entity, options: {} }, { body: { id } }), { defaultValue: null });
      say("accepted", id, (performance.now() - begun).toFixed(1));
    } catch (error) {
      say("failed", id, `${error.code ?? error.name}: ${error.message}`.replace(/\s+/g, " ").slice(0, 300));
    }
    await new Promise((resolve) => setTimeout(resolve, Number(pause)));
  }
}

process.stdin.on("end", () => { ending = true; });
process.stdin.resume();
Promise.all(Array.from({ length: Number(lanes) }, (_, lane) => run(lane))).then(() => {
  say("ended");
  process.exit(0);
});
