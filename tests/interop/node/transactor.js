// A transactional process with kafkajs, led step by step through its standard input; what it understands stands in
// tests/interop/transactor.py. kafkajs knows no static members: a dead one is missed after its session.
//
//     node transactor.js HOST:PORT TRANSACTIONAL-ID TIMEOUT-MS GROUP INPUT

import readline from "node:readline";
import kafkajs from "kafkajs";

const [bootstrap, transactionalId, timeoutMs, group, input] = process.argv.slice(2);
const { Kafka, logLevel } = kafkajs;
const kafka = new Kafka({ clientId: "transactor", brokers: [bootstrap], logLevel: logLevel.NOTHING });
const producer = kafka.producer({
  transactionalId,
  transactionTimeout: Number(timeoutMs),
  idempotent: true,
  maxInFlightRequests: 1,
});
const fetched = [];
const positions = new Map();
let consumer = null;
let transaction = null;
let arrived = () => {};

async function subscribe() {
  consumer = kafka.consumer({ groupId: group, sessionTimeout: 1000, heartbeatInterval: 200, maxWaitTimeInMs: 50 });
  await consumer.connect();
  await consumer.subscribe({ topics: [input], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      fetched.push({ partition, offset: Number(message.offset), value: message.value.toString() });
      arrived();
    },
  });
}

async function take(count) {
  if (consumer === null) await subscribe();
  const found = [];
  while (found.length < count) {
    if (fetched.length === 0) {
      await new Promise((resolve) => (arrived = resolve));
      continue;
    }
    const { partition, offset, value } = fetched.shift();
    // on a busy machine it may lose its short session, and begin again where it last committed
    if (offset < (positions.get(partition) ?? 0)) continue;
    positions.set(partition, offset + 1);
    found.push(`${partition}:${offset}:${value}`);
  }
  return found.join(" ");
}

async function send(topic, partition, value) {
  const [sent] = await transaction.send({ topic, messages: [{ partition: Number(partition), value }] });
  return sent.baseOffset;
}

async function offsets() {
  const partitions = [...positions].map(([partition, offset]) => ({ partition, offset: String(offset) }));
  await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic: input, partitions }] });
}

const steps = {
  init: async () => {
    await producer.connect();
    await (await producer.transaction()).abort(); // the first transaction asks for the producer id
  },
  take: (count) => take(Number(count)),
  begin: async () => {
    transaction = await producer.transaction();
  },
  send,
  offsets,
  commit: () => transaction.commit(),
  abort: () => transaction.abort(),
  close: async () => {
    if (consumer !== null) await consumer.disconnect();
    await producer.disconnect();
  },
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const [name, ...given] = line.split(" ");
  try {
    console.log(`ok ${(await steps[name](...given)) ?? ""}`.trim());
  } catch (error) {
    console.log(`error ${error.type ?? error.name} ${error.message}`.replaceAll("\n", " "));
  }
}
process.exit(0);
