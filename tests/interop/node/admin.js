// What kafkajs's admin client can do on one node, step by step; each line of the output is what one step gave.
//
//     node admin.js HOST:PORT

import kafkajs from "kafkajs";

const { Kafka, ConfigResourceTypes, logLevel } = kafkajs;
const kafka = new Kafka({
  clientId: "interop",
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  retry: { retries: 1, initialRetryTime: 10 },
});
const admin = kafka.admin();
const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
const sorted = (list, key) => [...list].sort((a, b) => (a[key] < b[key] ? -1 : 1));

async function step(name, work) {
  let result;
  try {
    result = (await work()) ?? null;
  } catch (error) {
    const errors = (error.errors ?? []).map((each) => each.type);
    result = { error: error.name, type: error.type ?? null, errors };
  }
  console.log(JSON.stringify({ step: name, result }));
}

const topic = (type, name, more) => ({ type, name, ...more });
const ofTopic = (name, more) => topic(ConfigResourceTypes.TOPIC, name, more);
const config = async (name, names) => {
  const { resources } = await admin.describeConfigs({
    resources: [ofTopic(name, { configNames: names })],
    includeSynonyms: true,
  });
  return resources.map(({ errorCode, configEntries }) => ({ errorCode, entries: sorted(configEntries, "configName") }));
};

await admin.connect();
await step("list", async () => (await admin.listTopics()).filter((name) => name.startsWith("js-")));
await step("create", () =>
  admin.createTopics({
    topics: [
      { topic: "js-a", numPartitions: 2, configEntries: [{ name: "retention.ms", value: "60000" }] },
      { topic: "js-placed", replicaAssignment: [{ partition: 0, replicas: [1] }] },
    ],
  }),
);
await step("create again", () => admin.createTopics({ topics: [{ topic: "js-a" }] }));
await step("create badly", () =>
  admin.createTopics({ topics: [{ topic: "js-bad", configEntries: [{ name: "no.such", value: "1" }] }] }),
);
await step("only validate", () => admin.createTopics({ validateOnly: true, topics: [{ topic: "js-not-made" }] }));
await step("create partitions", () => admin.createPartitions({ topicPartitions: [{ topic: "js-a", count: 3 }] }));
await step("fewer partitions", () => admin.createPartitions({ topicPartitions: [{ topic: "js-a", count: 1 }] }));
await step("metadata", async () => {
  const { topics } = await admin.fetchTopicMetadata({ topics: ["js-a", "js-placed"] });
  return sorted(topics, "name").map((each) => ({ ...each, partitions: sorted(each.partitions, "partitionId") }));
});
await step("metadata of none", () => admin.fetchTopicMetadata({ topics: ["js-none"] }));
await step("cluster", async () => {
  const { brokers, controller } = await admin.describeCluster();
  return { brokers: brokers.map(({ nodeId, host }) => ({ nodeId, host })), controller };
});
await step("configs", () => config("js-a", ["retention.ms", "cleanup.policy", "max.message.bytes"]));
await step("all configs", async () => (await config("js-a"))[0].entries.map(({ configName }) => configName));
await step("configs of none", () => config("js-none", ["retention.ms"]));
await step("broker configs", async () => {
  const { resources } = await admin.describeConfigs({
    resources: [{ type: ConfigResourceTypes.BROKER, name: "1", configNames: ["num.partitions", "log.retention.hours"] }],
  });
  return sorted(resources[0].configEntries, "configName");
});
await step("alter configs", () =>
  admin.alterConfigs({ resources: [ofTopic("js-a", { configEntries: [{ name: "segment.ms", value: "90000" }] })] }),
);
await step("configs altered", () => config("js-a", ["retention.ms", "segment.ms"]));
await step("alter badly", () =>
  admin.alterConfigs({ resources: [ofTopic("js-a", { configEntries: [{ name: "segment.ms", value: "soon" }] })] }),
);
await producer.connect();
await step("send", () =>
  producer.send({
    topic: "js-a",
    acks: -1,
    messages: [1, 2, 3].map((n) => ({ partition: 0, key: `k${n}`, value: `v${n}`, timestamp: `${1700000000000 + n}` })),
  }),
);
await producer.disconnect();
await step("offsets", async () => sorted(await admin.fetchTopicOffsets("js-a"), "partition"));
await step("offsets by time", async () => sorted(await admin.fetchTopicOffsetsByTimestamp("js-a", 1700000000002), "partition"));
await step("delete records", () => admin.deleteTopicRecords({ topic: "js-a", partitions: [{ partition: 0, offset: "2" }] }));
await step("delete too many records", () =>
  admin.deleteTopicRecords({ topic: "js-a", partitions: [{ partition: 0, offset: "9" }] }),
);
await step("offsets after", async () => sorted(await admin.fetchTopicOffsets("js-a"), "partition"));
await step("reassignments", () => admin.listPartitionReassignments({}));
await step("reassign", () =>
  admin.alterPartitionReassignments({
    topics: [{ topic: "js-a", partitionAssignment: [{ partition: 0, replicas: [1] }] }],
  }),
);
await step("reassign badly", () =>
  admin.alterPartitionReassignments({
    topics: [{ topic: "js-a", partitionAssignment: [{ partition: 0, replicas: [9] }] }],
  }),
);
await step("delete", () => admin.deleteTopics({ topics: ["js-a", "js-placed"] }));
await step("delete none", () => admin.deleteTopics({ topics: ["js-none"] }));
await step("list at last", async () => (await admin.listTopics()).filter((name) => name.startsWith("js-")));
await admin.disconnect();
