"""The documentation of every setting, for DescribeConfigs; imported only when documentation is requested.

A broker setting that is the default of a topic setting is documented by that one's sentence.
"""

from __future__ import annotations

from barnabas.core.settings.broker import BROKER
from barnabas.core.settings.topic import SYNONYMS, TOPIC

# ruff: noqa: E501
_TOPIC_TEXT = """\
cleanup.policy: What becomes of old segments: delete drops them, compact keeps the latest value of every key; both can be combined.
compression.gzip.level: The gzip level, where the broker compresses with gzip.
compression.lz4.level: The lz4 level, where the broker compresses with lz4.
compression.type: The codec batches are stored with; producer keeps each as it was sent.
compression.zstd.level: The zstd level, where the broker compresses with zstd.
delete.retention.ms: How long a tombstone stays readable in a compacted topic.
file.delete.delay.ms: How long a deleted segment's files stay on disk before they are removed.
flush.messages: After how many messages the log is synced to disk; 1 syncs before each acknowledgement.
flush.ms: How long a message may wait before the log is synced to disk.
follower.replication.throttled.replicas: The followers whose replication is throttled, as partition:broker, or * for all.
index.interval.bytes: How many bytes of log lie between two entries of its index.
internal.segment.bytes: A segment size below the usual minimum, for tests.
leader.replication.throttled.replicas: The leaders whose replication is throttled, as partition:broker, or * for all.
local.retention.bytes: How many bytes of a tiered partition stay on local disk; -2 follows retention.bytes.
local.retention.ms: How long a tiered partition's segments stay on local disk; -2 follows retention.ms.
max.compaction.lag.ms: The longest that a message of a compacted topic may stay uncompacted.
max.message.bytes: The largest record batch that is accepted, compressed.
message.timestamp.after.max.ms: How far ahead of the broker's clock a message's timestamp may be.
message.timestamp.before.max.ms: How far behind the broker's clock a message's timestamp may be.
message.timestamp.type: Whether a message bears the time of its creation or of its append.
min.cleanable.dirty.ratio: Which share of a log must be uncompacted before it is compacted.
min.compaction.lag.ms: The shortest that a message of a compacted topic stays uncompacted.
min.insync.replicas: How many replicas must have a message before acks=all is acknowledged.
preallocate: Whether a new segment's file is given its full size at once.
remote.log.copy.disable: Whether a tiered topic stops copying segments to remote storage.
remote.log.delete.on.disable: Whether remote data goes when tiering is disabled for the topic.
remote.storage.enable: Whether the topic's old segments go to remote storage.
retention.bytes: How many bytes of a partition are kept; -1 is no limit.
retention.ms: How long a segment is kept after its newest message; -1 is for ever.
segment.bytes: The size at which a segment is closed and the next begun.
segment.index.bytes: The largest size of a segment's offset index.
segment.jitter.ms: The most by which the closing of a segment by age is brought forward, at random.
segment.ms: The age at which a segment is closed although it is not full.
unclean.leader.election.enable: Whether a replica outside the in-sync set may lead, at the price of lost messages.
"""

_BROKER_TEXT = """\
add.partitions.to.txn.retry.backoff.max.ms: The longest that the server retries adding a partition to a transaction.
add.partitions.to.txn.retry.backoff.ms: The pause between tries to add a partition to a transaction.
advertised.listeners: The addresses that clients and brokers are told, where they differ from listeners.
alter.config.policy.class.name: The class that judges altered configurations.
alter.log.dirs.replication.quota.window.num: How many samples the quota of moves between directories keeps.
alter.log.dirs.replication.quota.window.size.seconds: The length of each sample of that quota.
authorizer.class.name: The class that decides who may do what; empty for no checks.
auto.create.topics.enable: Whether a topic is created when a client first asks for it.
auto.leader.rebalance.enable: Whether leadership returns to preferred replicas by itself.
background.threads: Threads for background work.
broker.heartbeat.interval.ms: How often a broker reports to the controller.
broker.id: The node's id under its older name; the same as node.id.
broker.rack: The rack or zone of this broker, for placing replicas and for reading nearby.
broker.session.timeout.ms: How long a broker may be silent before the controller fences it.
client.quota.callback.class: The class that computes the quotas of clients.
config.providers: The names of those who resolve references in configuration values.
connection.failed.authentication.delay.ms: How long a connection that failed to authenticate is kept before it is closed.
connections.max.idle.ms: How long a connection may be idle before it is closed.
connections.max.reauth.ms: How long a SASL session lasts before the client must authenticate again; 0 for ever.
controlled.shutdown.enable: Whether a stopping broker hands its partitions over first.
controller.listener.names: The listeners that serve the controller quorum.
controller.performance.always.log.threshold.ms: From which duration on an event of the controller is always logged.
controller.performance.sample.period.ms: How often the controller logs its slowest event.
controller.quorum.append.linger.ms: How long the quorum's leader gathers records before it writes them.
controller.quorum.auto.join.enable: Whether a new controller adds itself to the voters.
controller.quorum.bootstrap.servers: The endpoints by which the quorum is found.
controller.quorum.election.backoff.max.ms: The longest pause before another election.
controller.quorum.election.timeout.ms: How long a candidate waits for votes.
controller.quorum.fetch.max.bytes: The most that one fetch of the metadata log returns.
controller.quorum.fetch.snapshot.max.bytes: The most that one fetch of a metadata snapshot returns.
controller.quorum.fetch.timeout.ms: How long a voter is without its leader before it calls an election.
controller.quorum.request.timeout.ms: How long a request within the quorum may take.
controller.quorum.retry.backoff.ms: The pause before a request within the quorum is tried again.
controller.quorum.voters: The fixed set of controllers, as id@host:port.
controller.quota.window.num: How many samples the quota of controller mutations keeps.
controller.quota.window.size.seconds: The length of each sample of that quota.
controller.socket.timeout.ms: How long a channel to the controller waits for an answer.
cordoned.log.dirs: The log directories that get no new replicas.
create.topic.policy.class.name: The class that judges new topics.
default.replication.factor: The number of replicas of topics that do not say.
delegation.token.expiry.check.interval.ms: How often expired delegation tokens are removed.
delegation.token.expiry.time.ms: How long a delegation token is valid unless renewed.
delegation.token.max.lifetime.ms: How long a delegation token can be renewed.
delegation.token.secret.key: The key that signs delegation tokens.
delete.records.purgatory.purge.interval.requests: How many completed requests gather before they are purged.
delete.topic.enable: Whether topics can be deleted.
early.start.listeners: The listeners that open before the node is ready to serve.
fetch.max.bytes: The most that the answer to one fetch holds, whatever the client asks.
fetch.purgatory.purge.interval.requests: How many completed requests gather before they are purged.
follower.fetch.last.tiered.offset.enable: Whether a new follower of a tiered partition starts at what is not tiered yet.
follower.replication.throttled.rate: How many bytes a second throttled followers may fetch together.
group.consumer.assignment.interval.ms: The shortest time between two assignments of a consumer group.
group.consumer.assignors: The server's assignors for consumer groups; the first is the default.
group.consumer.heartbeat.interval.ms: How often members of consumer groups report.
group.consumer.max.assignment.interval.ms: The most that a group may set for its assignment interval.
group.consumer.max.heartbeat.interval.ms: The most that a group may set for its heartbeat interval.
group.consumer.max.session.timeout.ms: The most that a group may set for its session timeout.
group.consumer.max.size: How many members a consumer group may have.
group.consumer.migration.policy: In which direction groups may move between the classic and the consumer protocol.
group.consumer.min.assignment.interval.ms: The least that a group may set for its assignment interval.
group.consumer.min.heartbeat.interval.ms: The least that a group may set for its heartbeat interval.
group.consumer.min.session.timeout.ms: The least that a group may set for its session timeout.
group.consumer.regex.refresh.interval.ms: How often patterns of subscriptions are matched anew.
group.consumer.session.timeout.ms: How long a member of a consumer group may be silent.
group.coordinator.append.linger.ms: How long the group coordinator gathers records before it writes them; -1 adapts.
group.coordinator.background.threads: Threads for the group coordinator's background work.
group.coordinator.cached.buffer.max.bytes: The largest write buffer that the group coordinator keeps for the next write.
group.coordinator.rebalance.protocols: The group protocols that are served.
group.coordinator.threads: Threads of the group coordinator.
group.initial.rebalance.delay.ms: How long a new classic group waits for more members before its first rebalance.
group.max.session.timeout.ms: The longest session timeout a member of a classic group may ask for.
group.max.size: How many members a classic group may have.
group.min.session.timeout.ms: The shortest session timeout a member of a classic group may ask for.
group.share.assignment.interval.ms: The shortest time between two assignments of a share group.
group.share.assignors: The server's assignors for share groups.
group.share.delivery.count.limit: How often a record is delivered to a share group before it is given up.
group.share.heartbeat.interval.ms: How often members of share groups report.
group.share.initialize.retry.interval.ms: The pause before the state of a share group is initialised again.
group.share.max.assignment.interval.ms: The most that a share group may set for its assignment interval.
group.share.max.delivery.count.limit: The most that a share group may set for its delivery limit.
group.share.max.heartbeat.interval.ms: The most that a share group may set for its heartbeat interval.
group.share.max.partition.max.record.locks: The most that a share group may set for its records in delivery.
group.share.max.record.lock.duration.ms: The most that a share group may set for its lock duration.
group.share.max.session.timeout.ms: The most that a share group may set for its session timeout.
group.share.max.share.sessions: How many share sessions a broker keeps.
group.share.max.size: How many members a share group may have.
group.share.min.assignment.interval.ms: The least that a share group may set for its assignment interval.
group.share.min.delivery.count.limit: The least that a share group may set for its delivery limit.
group.share.min.heartbeat.interval.ms: The least that a share group may set for its heartbeat interval.
group.share.min.partition.max.record.locks: The least that a share group may set for its records in delivery.
group.share.min.record.lock.duration.ms: The least that a share group may set for its lock duration.
group.share.min.session.timeout.ms: The least that a share group may set for its session timeout.
group.share.partition.max.record.locks: How many records of a partition a share group may have in delivery.
group.share.persister.class.name: The class that keeps the state of share groups.
group.share.record.lock.duration.ms: How long a share consumer has to acknowledge a record.
group.share.session.timeout.ms: How long a member of a share group may be silent.
group.streams.assignment.interval.ms: The shortest time between two assignments of a streams group.
group.streams.heartbeat.interval.ms: How often members of streams groups report.
group.streams.initial.rebalance.delay.ms: How long a new streams group waits for more members.
group.streams.max.assignment.interval.ms: The most that a streams group may set for its assignment interval.
group.streams.max.heartbeat.interval.ms: The most that a streams group may set for its heartbeat interval.
group.streams.max.session.timeout.ms: The most that a streams group may set for its session timeout.
group.streams.max.size: How many members a streams group may have.
group.streams.max.standby.replicas: The most standby tasks that a streams group may ask for.
group.streams.min.assignment.interval.ms: The least that a streams group may set for its assignment interval.
group.streams.min.heartbeat.interval.ms: The least that a streams group may set for its heartbeat interval.
group.streams.min.session.timeout.ms: The least that a streams group may set for its session timeout.
group.streams.num.standby.replicas: How many standby copies each task of a streams group has.
group.streams.session.timeout.ms: How long a member of a streams group may be silent.
initial.broker.registration.timeout.ms: How long a starting broker tries to register before it gives up.
inter.broker.listener.name: The listener by which brokers reach each other.
internal.metadata.delete.delay.millis: How long deleted files of the metadata log stay on disk.
internal.metadata.log.segment.bytes: A metadata segment size below the usual minimum, for tests.
internal.metadata.max.batch.size.in.bytes: The largest batch of metadata records.
kafka.metrics.polling.interval.secs: How often reporters of older metrics run.
kafka.metrics.reporters: Reporters of older metrics.
leader.imbalance.check.interval.seconds: How often the controller looks for leaders that are not the preferred ones.
leader.replication.throttled.rate: How many bytes a second leaders may send to throttled followers together.
listener.security.protocol.map: The protocol of every listener, as NAME:PROTOCOL.
listeners: The addresses that the node binds, as NAME://host:port.
log.cleaner.backoff.ms: How long the compaction sleeps when there is nothing to compact.
log.cleaner.dedupe.buffer.size: The memory that all compactions share for their keys.
log.cleaner.enable: Whether compaction runs at all.
log.cleaner.io.buffer.load.factor: How full the table of keys may become in a compaction.
log.cleaner.io.buffer.size: The memory that all compactions share for reading and writing.
log.cleaner.io.max.bytes.per.second: The most that compactions read and write a second.
log.cleaner.threads: Threads that compact.
log.dir: The log directory, where log.dirs is not set.
log.dir.failure.timeout.ms: How long a broker tries to report a failed directory before it stops.
log.dirs: The directories that hold the partitions.
log.flush.offset.checkpoint.interval.ms: How often the recovery points of all logs are written down.
log.flush.scheduler.interval.ms: How often logs are looked through for what is due to be synced; also the default of log.flush.interval.ms.
log.flush.start.offset.checkpoint.interval.ms: How often the start offsets of all logs are written down.
log.initial.task.delay.ms: How long after the start the background tasks of the logs begin.
log.retention.check.interval.ms: How often logs are looked through for segments to delete.
max.connection.creation.rate: How many connections are accepted a second.
max.connections: How many connections the broker has at most.
max.connections.per.ip: How many connections one address has at most.
max.connections.per.ip.overrides: Addresses with another limit, as host:count.
max.incremental.fetch.session.cache.slots: How many fetch sessions are kept.
max.request.partition.size.limit: The most partitions that one request to describe topics answers.
metadata.log.dir: The directory of the metadata log; the first of log.dirs unless set.
metadata.log.max.record.bytes.between.snapshots: After how many bytes of records a metadata snapshot is due.
metadata.log.max.snapshot.interval.ms: After how long a metadata snapshot is due; 0 for never.
metadata.log.segment.bytes: The size at which a segment of the metadata log is closed.
metadata.log.segment.ms: The age at which a segment of the metadata log is closed.
metadata.max.idle.interval.ms: How often the active controller writes when there is nothing to write; 0 for never.
metadata.max.retention.bytes: How many bytes of metadata log and snapshots are kept.
metadata.max.retention.ms: How long metadata log and snapshots are kept.
metric.reporters: Classes that report metrics.
metrics.num.samples: How many samples a metric keeps.
metrics.recording.level: The finest level of metrics that are recorded.
metrics.sample.window.ms: The length of a metric's sample.
node.id: The id of this node, unique in the cluster.
num.io.threads: Threads that process requests.
num.network.threads: Threads that read requests and write responses.
num.partitions: The number of partitions of topics that do not say.
num.recovery.threads.per.data.dir: Threads that recover a directory's logs at start and sync them at the end.
num.replica.alter.log.dirs.threads: Threads that move replicas between directories.
num.replica.fetchers: Threads that fetch from each other broker.
offset.metadata.max.bytes: The longest text that may be committed with an offset.
offsets.commit.timeout.ms: How long an offset commit waits for its replicas.
offsets.load.buffer.size: How much is read at a time when committed offsets are loaded.
offsets.retention.check.interval.ms: How often expired offsets are removed.
offsets.retention.minutes: How long a group's offsets are kept once it is empty.
offsets.topic.compression.codec: The number of the codec that committed offsets are stored with; 0 is none.
offsets.topic.num.partitions: The number of partitions of the topic of committed offsets.
offsets.topic.replication.factor: The number of replicas of the topic of committed offsets.
offsets.topic.segment.bytes: The segment size of the topic of committed offsets.
principal.builder.class: The class that tells who a connection belongs to.
process.roles: Whether the node is a broker, a controller, or both.
producer.id.expiration.check.interval.ms: How often expired producers are forgotten.
producer.id.expiration.ms: How long a partition remembers a producer that writes no more.
producer.purgatory.purge.interval.requests: How many completed requests gather before they are purged.
queued.max.request.bytes: How many bytes of requests may be in memory before no more are read; -1 is no limit.
queued.max.requests: How many requests may wait for a thread.
quota.window.num: How many samples the quotas of clients keep.
quota.window.size.seconds: The length of each sample of those quotas.
remote.fetch.max.wait.ms: How long a fetch waits for remote storage.
remote.list.offsets.request.timeout.ms: How long a look-up of offsets waits for remote storage.
remote.log.index.file.cache.total.size.bytes: The disk space for cached indexes of remote segments.
remote.log.index.file.cache.ttl.ms: How long an unused index of a remote segment is cached.
remote.log.manager.copier.thread.pool.size: Threads that copy segments to remote storage.
remote.log.manager.copy.max.bytes.per.second: The most that is copied to remote storage a second.
remote.log.manager.copy.quota.window.num: How many samples the quota of copying keeps.
remote.log.manager.copy.quota.window.size.seconds: The length of each sample of that quota.
remote.log.manager.expiration.thread.pool.size: Threads that delete expired remote segments.
remote.log.manager.fetch.max.bytes.per.second: The most that is read from remote storage a second.
remote.log.manager.fetch.quota.window.num: How many samples the quota of remote reads keeps.
remote.log.manager.fetch.quota.window.size.seconds: The length of each sample of that quota.
remote.log.manager.follower.thread.pool.size: Threads for tiered partitions that this broker follows.
remote.log.manager.task.interval.ms: How often partitions are looked through for segments to copy.
remote.log.manager.task.retry.backoff.max.ms: The longest pause before a task of remote storage is tried again.
remote.log.manager.task.retry.backoff.ms: The first pause before a task of remote storage is tried again.
remote.log.manager.task.retry.jitter: By how much that pause varies at random.
remote.log.manager.thread.pool.size: Threads of remote storage that have no pool of their own.
remote.log.metadata.custom.metadata.max.bytes: The largest metadata that a storage plug-in may add to a segment.
remote.log.metadata.manager.class.name: The class that keeps the metadata of remote segments.
remote.log.metadata.manager.class.path: Where that class is found.
remote.log.metadata.manager.impl.prefix: The prefix of that class's own settings.
remote.log.metadata.manager.listener.name: The listener by which that class reaches the brokers.
remote.log.reader.max.pending.tasks: How many remote reads may wait.
remote.log.reader.threads: Threads that read from remote storage.
remote.log.storage.manager.class.name: The class that stores remote segments.
remote.log.storage.manager.class.path: Where that class is found.
remote.log.storage.manager.impl.prefix: The prefix of that class's own settings.
remote.log.storage.system.enable: Whether the broker can tier its logs.
replica.alter.log.dirs.io.max.bytes.per.second: How many bytes a second may be moved between directories.
replica.fetch.backoff.ms: How long a follower pauses after a failed fetch.
replica.fetch.max.bytes: The most that a follower asks of one partition at a time.
replica.fetch.min.bytes: The least that a follower's fetch waits for.
replica.fetch.response.max.bytes: The most that a follower asks for at a time.
replica.fetch.wait.max.ms: How long a follower's fetch waits for new data.
replica.high.watermark.checkpoint.interval.ms: How often high watermarks are written down.
replica.lag.time.max.ms: How long a follower may lag before it leaves the in-sync set.
replica.selector.class: The class that chooses which replica a consumer reads from.
replica.socket.receive.buffer.bytes: The receive buffer of a follower's socket.
replica.socket.timeout.ms: How long a follower's fetch may take.
replication.quota.window.num: How many samples the quota of replication keeps.
replication.quota.window.size.seconds: The length of each sample of that quota.
request.timeout.ms: How long this broker's own requests may take.
sasl.client.callback.handler.class: The class of callbacks for SASL clients.
sasl.enabled.mechanisms: The SASL mechanisms that are served.
sasl.jaas.config: The login for SASL, in JAAS format.
sasl.kerberos.kinit.cmd: The path of Kerberos' kinit.
sasl.kerberos.min.time.before.relogin: The shortest time between two Kerberos logins.
sasl.kerberos.principal.to.local.rules: The rules that turn Kerberos principals into user names.
sasl.kerberos.service.name: The Kerberos principal that the broker runs as.
sasl.kerberos.ticket.renew.jitter: By how much the renewal of a Kerberos ticket varies at random.
sasl.kerberos.ticket.renew.window.factor: After which share of its life a Kerberos ticket is renewed.
sasl.login.callback.handler.class: The class of callbacks for SASL logins.
sasl.login.class: The class that logs in for SASL.
sasl.login.connect.timeout.ms: How long connecting to an OAuth provider may take.
sasl.login.read.timeout.ms: How long reading from an OAuth provider may take.
sasl.login.refresh.buffer.seconds: How long before its end a credential is refreshed at the latest.
sasl.login.refresh.min.period.seconds: The shortest time between two refreshes of a credential.
sasl.login.refresh.window.factor: After which share of its life a credential is refreshed.
sasl.login.refresh.window.jitter: By how much the refresh of a credential varies at random.
sasl.login.retry.backoff.max.ms: The longest pause before a login is tried again.
sasl.login.retry.backoff.ms: The first pause before a login is tried again.
sasl.mechanism.controller.protocol: The SASL mechanism towards controllers.
sasl.mechanism.inter.broker.protocol: The SASL mechanism between brokers.
sasl.oauthbearer.assertion.algorithm: The algorithm that signs an OAuth assertion.
sasl.oauthbearer.assertion.claim.aud: The audience that an OAuth assertion claims.
sasl.oauthbearer.assertion.claim.exp.seconds: For how long an OAuth assertion is valid.
sasl.oauthbearer.assertion.claim.iss: The issuer that an OAuth assertion claims.
sasl.oauthbearer.assertion.claim.jti.include: Whether an OAuth assertion has an id of its own.
sasl.oauthbearer.assertion.claim.nbf.seconds: How far back an OAuth assertion's validity begins.
sasl.oauthbearer.assertion.claim.sub: The subject that an OAuth assertion claims.
sasl.oauthbearer.assertion.file: The file of a ready-made OAuth assertion.
sasl.oauthbearer.assertion.private.key.file: The file of the key that signs OAuth assertions.
sasl.oauthbearer.assertion.private.key.passphrase: The passphrase of that key.
sasl.oauthbearer.assertion.template.file: The file of a template for OAuth assertions.
sasl.oauthbearer.client.credentials.client.id: The client id for an OAuth provider.
sasl.oauthbearer.client.credentials.client.secret: The client secret for an OAuth provider.
sasl.oauthbearer.clock.skew.seconds: How far clocks may differ when OAuth tokens are checked.
sasl.oauthbearer.expected.audience: The audiences that an OAuth token must be for.
sasl.oauthbearer.expected.issuer: The issuer that an OAuth token must be from.
sasl.oauthbearer.jwks.endpoint.refresh.ms: How often the keys of an OAuth provider are fetched.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms: The longest pause before those keys are fetched again after a failure.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms: The first pause before those keys are fetched again after a failure.
sasl.oauthbearer.jwks.endpoint.url: Where an OAuth provider's keys are.
sasl.oauthbearer.jwt.retriever.class: The class that fetches OAuth tokens.
sasl.oauthbearer.jwt.validator.class: The class that checks OAuth tokens.
sasl.oauthbearer.scope: The scope that is asked of an OAuth provider.
sasl.oauthbearer.scope.claim.name: The name of the claim that holds the scope.
sasl.oauthbearer.sub.claim.name: The name of the claim that holds the subject.
sasl.oauthbearer.token.endpoint.url: Where an OAuth provider issues tokens.
sasl.server.callback.handler.class: The class of callbacks for SASL servers.
sasl.server.max.receive.size: The largest message before a SASL authentication is done.
security.inter.broker.protocol: The protocol between brokers, where no listener is named for it.
security.providers: Classes that provide security algorithms.
server.max.startup.time.ms: How long a start may take before it is given up.
share.coordinator.append.linger.ms: How long the share coordinator gathers records before it writes them; -1 adapts.
share.coordinator.cached.buffer.max.bytes: The largest write buffer that the share coordinator keeps for the next write.
share.coordinator.cold.partition.snapshot.interval.ms: How often share state that does not change is written anew.
share.coordinator.load.buffer.size: How much is read at a time when share state is loaded.
share.coordinator.snapshot.update.records.per.snapshot: How many updates of share state follow a snapshot of it.
share.coordinator.state.topic.compression.codec: The number of the codec that share state is stored with; 0 is none.
share.coordinator.state.topic.min.isr: The min.insync.replicas of the topic of share state.
share.coordinator.state.topic.num.partitions: The number of partitions of the topic of share state.
share.coordinator.state.topic.prune.interval.ms: How often outdated share state is deleted.
share.coordinator.state.topic.replication.factor: The number of replicas of the topic of share state.
share.coordinator.state.topic.segment.bytes: The segment size of the topic of share state.
share.coordinator.threads: Threads of the share coordinator.
share.coordinator.write.timeout.ms: How long a write of share state waits for its replicas.
share.fetch.purgatory.purge.interval.requests: How many completed requests gather before they are purged.
socket.connection.setup.timeout.max.ms: The longest that this broker tries one connection to another.
socket.connection.setup.timeout.ms: How long this broker's first try at a connection to another lasts.
socket.listen.backlog.size: How many connections may wait to be accepted.
socket.receive.buffer.bytes: The receive buffer of a server socket; -1 is the system's.
socket.request.max.bytes: The largest request that is accepted.
socket.send.buffer.bytes: The send buffer of a server socket; -1 is the system's.
ssl.allow.dn.changes: Whether a renewed certificate may have another distinguished name.
ssl.allow.san.changes: Whether a renewed certificate may have other alternative names.
ssl.cipher.suites: The cipher suites that may be used; all, if none is named.
ssl.client.auth: Whether clients must, may or need not show a certificate.
ssl.enabled.protocols: The TLS versions that may be used.
ssl.endpoint.identification.algorithm: How a server's name is checked against its certificate.
ssl.engine.factory.class: The class that makes TLS engines.
ssl.key.password: The password of the private key.
ssl.keymanager.algorithm: The algorithm of the key manager.
ssl.keystore.certificate.chain: The certificate chain, as PEM.
ssl.keystore.key: The private key, as PEM.
ssl.keystore.location: The file of the key store.
ssl.keystore.password: The password of the key store.
ssl.keystore.type: The format of the key store.
ssl.principal.mapping.rules: The rules that turn distinguished names into user names.
ssl.protocol: The TLS version that is preferred.
ssl.provider: The security provider for TLS.
ssl.secure.random.implementation: The source of random numbers for TLS.
ssl.trustmanager.algorithm: The algorithm of the trust manager.
ssl.truststore.certificates: The trusted certificates, as PEM.
ssl.truststore.location: The file of the trust store.
ssl.truststore.password: The password of the trust store.
ssl.truststore.type: The format of the trust store.
telemetry.max.bytes: The largest set of metrics that a client may push.
transaction.abort.timed.out.transaction.cleanup.interval.ms: How often transactions that took too long are aborted.
transaction.max.timeout.ms: The longest timeout a transactional producer may ask for.
transaction.partition.verification.enable: Whether a write is refused whose partition is not in its transaction.
transaction.remove.expired.transaction.cleanup.interval.ms: How often expired transactional ids are removed.
transaction.state.log.load.buffer.size: How much is read at a time when transactions are loaded.
transaction.state.log.min.isr: The min.insync.replicas of the topic of transactions.
transaction.state.log.num.partitions: The number of partitions of the topic of transactions.
transaction.state.log.replication.factor: The number of replicas of the topic of transactions.
transaction.state.log.segment.bytes: The segment size of the topic of transactions.
transaction.two.phase.commit.enable: Whether clients may prepare transactions that never time out.
transactional.id.expiration.ms: How long an idle transactional id is remembered.
unclean.leader.election.interval.ms: How often the controller looks for partitions that only an unclean leader can save.
unstable.api.versions.enable: Whether API versions still in development are served.
unstable.feature.versions.enable: Whether feature levels still in development are allowed.
"""

_GROUP_TEXT = """\
consumer.assignment.interval.ms: The shortest time between two assignments of the consumer group.
consumer.heartbeat.interval.ms: How often the members of the consumer group report.
consumer.session.timeout.ms: How long a member of the consumer group may be silent.
share.assignment.interval.ms: The shortest time between two assignments of the share group.
share.auto.offset.reset: Where a share group starts to read: earliest, latest, or by_duration: and how long ago.
share.delivery.count.limit: How often a record is delivered to the share group at most.
share.heartbeat.interval.ms: How often the members of the share group report.
share.isolation.level: Whether the share group gets the records of transactions that are open or aborted.
share.partition.max.record.locks: How many records of a partition may be out for delivery at a time.
share.record.lock.duration.ms: How long a record that is out for delivery is kept from others.
share.renew.acknowledge.enable: Whether a consumer may ask for more time with a record.
share.session.timeout.ms: How long a member of the share group may be silent.
streams.assignment.interval.ms: The shortest time between two assignments of the streams group.
streams.heartbeat.interval.ms: How often the members of the streams group report.
streams.initial.rebalance.delay.ms: How long a new streams group waits for more members before its first assignment.
streams.num.standby.replicas: How many standby copies each task of the streams group has.
streams.session.timeout.ms: How long a member of the streams group may be silent.
"""

_CLIENT_METRICS_TEXT = """\
interval.ms: How often clients push their metrics.
match: The clients that are meant, as name=pattern; all, if none is named.
metrics: The prefixes of the metrics' names; * for all.
"""

_OWN_TEXT = """\
barnabas.allow.unenforced.security: Whether a node starts although access rules, users' credentials or policies are there that it cannot enforce.
barnabas.fence.by.socket: Whether the active controller fences a broker as soon as its heartbeat connection has closed and its listener refuses a dial, instead of waiting for the end of its session.
barnabas.log.format: How the node writes its log: text for people, json for programs.
barnabas.metrics.listen: Where metrics are served, as host:port; nowhere, if it is not set.
"""

_SENTENCES: dict[str, str] = {}


def sentence(name: str) -> str | None:
    """The documentation of a broker or topic setting; None for a name that is not Kafka's."""
    if not _SENTENCES:
        _SENTENCES.update(_read(_BROKER_TEXT) | _read(_OWN_TEXT))
        topic = _read(_TOPIC_TEXT)
        for setting, synonyms in SYNONYMS.items():
            for synonym, unit in synonyms:
                scale = {1: "", 60_000: " In minutes.", 3_600_000: " In hours."}[unit]
                _SENTENCES.setdefault(
                    synonym, f"For topics that do not set {setting}: {topic[setting]}{scale}"
                )
        _SENTENCES.update(topic)
    text = _SENTENCES.get(name)
    if text is not None and name in BROKER and name not in TOPIC and not BROKER[name].has_effect:
        return f"{text} Accepted without effect: one event loop serves everything here."
    return text


def group_sentence(name: str) -> str | None:
    """The documentation of a group's setting."""
    return _read(_GROUP_TEXT).get(name)


def client_metrics_sentence(name: str) -> str | None:
    """The documentation of a setting of client metrics subscriptions."""
    return _read(_CLIENT_METRICS_TEXT).get(name)


def _read(text: str) -> dict[str, str]:
    rows = (row.partition(": ") for row in text.splitlines())
    return {name: about for name, _, about in rows}
