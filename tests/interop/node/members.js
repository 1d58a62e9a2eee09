// Members of groups with kafkajs, told what to do by lines of JSON, and telling; what it understands and what it says
// stands in tests/interop/python_members.py. kafkajs has no callbacks for rebalances: what it owns it owns from the
// event of a join to that of a rebalance. Members of other clients know its assignor as "roundrobin".
//
//     node members.js

import readline from "node:readline";
import kafkajs from "kafkajs";

const { Kafka, PartitionAssigners, logLevel } = kafkajs;
const members = new Map();
const retry = { initialRetryTime: 50, maxRetryTime: 200, retries: 1000 };
const assigners = {
  RoundRobinAssigner: PartitionAssigners.roundRobin,
  roundrobin: (settings) => ({ ...PartitionAssigners.roundRobin(settings), name: "roundrobin" }),
};

function tell(member, did, more = {}) {
  console.log(JSON.stringify({ at: process.hrtime.bigint().toString(), member, did, ...more }));
}

const flat = (assignment) =>
  Object.entries(assignment).flatMap(([topic, partitions]) => partitions.map((partition) => [topic, partition]));

class Member {
  constructor({ member, bootstrap, group, topics, assignors, session_ms, heartbeat_ms }) {
    this.name = member;
    this.topics = topics;
    this.owned = [];
    this.leaving = false;
    this.resolvedAt = "0";
    this.polling = Promise.resolve();
    this.resume = () => {};
    this.kafka = new Kafka({ clientId: member, brokers: [bootstrap], logLevel: logLevel.NOTHING, retry });
    this.settings = {
      groupId: group,
      partitionAssigners: assignors.map((name) => assigners[name]),
      sessionTimeout: session_ms,
      heartbeatInterval: heartbeat_ms,
      rebalanceTimeout: 30000,
      maxWaitTimeInMs: 50,
      retry,
    };
  }

  release(did) {
    if (this.owned.length) tell(this.name, did, { partitions: this.owned });
    this.owned = [];
  }

  // a join that failed, as the broker was away, leaves it with what it had
  keep(topic, partition) {
    if (this.owned.some((each) => each[0] === topic && each[1] === partition)) return;
    this.owned.push([topic, partition]);
    tell(this.name, "assigned", { partitions: [[topic, partition]] });
  }

  async join() {
    const { name } = this;
    const consumer = (this.consumer = this.kafka.consumer(this.settings));
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      if (this.leaving) return;
      this.release("lost"); // where it was not known any more there was no rebalance
      this.owned = flat(payload.memberAssignment);
      tell(name, "assigned", { partitions: this.owned });
    });
    consumer.on(consumer.events.REBALANCING, () => this.release("revoked"));
    consumer.on(consumer.events.CRASH, async ({ payload }) => {
      // it gives up where a broker is away for long; whoever uses it begins anew
      this.release("lost");
      if (payload.restart || this.leaving) return;
      await consumer.disconnect();
      await this.join();
    });
    consumer.on(consumer.events.COMMIT_OFFSETS, ({ payload }) => {
      const all = payload.topics.flatMap(({ topic, partitions }) =>
        partitions.map(({ partition, offset }) => [topic, Number(partition), Number(offset)]),
      );
      tell(name, "committed", {
        since: this.resolvedAt,
        partitions: all.map(([topic, partition]) => [topic, partition]),
        offsets: all.map(([, , offset]) => offset),
      });
    });
    await consumer.connect();
    await consumer.subscribe({ topics: this.topics, fromBeginning: true });
    await consumer.run({
      eachBatchAutoResolve: false,
      eachBatch: async ({ batch, resolveOffset, isRunning, isStale }) => {
        await this.polling;
        if (this.leaving || !isRunning() || isStale()) return;
        this.keep(batch.topic, batch.partition);
        tell(name, "read", {
          partitions: [[batch.topic, batch.partition]],
          offsets: [Number(batch.firstOffset()), Number(batch.lastOffset())],
        });
        resolveOffset(batch.lastOffset());
        this.resolvedAt = process.hrtime.bigint().toString(); // it commits by itself from now on
      },
    });
  }

  async leave() {
    this.leaving = true;
    this.resume();
    this.release("revoked");
    await this.consumer.disconnect();
    tell(this.name, "left");
  }

  stall() {
    this.polling = new Promise((resolve) => (this.resume = resolve));
    tell(this.name, "stalled");
  }
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.do === "join") {
    const member = new Member(command);
    members.set(command.member, member);
    member.join().catch((error) => tell(command.member, "failed", { why: String(error) }));
  } else {
    const member = members.get(command.member);
    if (command.do === "leave") member.leave();
    else if (command.do === "stall") member.stall();
    else member.resume();
  }
}
process.exit(0);
