"""All settings of a broker, one a row: name, kind, default, check, update mode, and further attributes.

Defaults: `null` for none, `''` for the empty text or list, `required` where Kafka demands a value. Checks are
written as in definition.py. `fixed` needs a restart, `broker` and `cluster` can be altered while running, for
one broker or for all. `idle` settings have no effect here (thread pools, Java's metrics): they are accepted
and described. `internal` ones are undocumented in Kafka, and described only if they are set.
"""

from __future__ import annotations

from barnabas.core.settings.table import Table

# ruff: noqa: E501
_ROWS = """\
add.partitions.to.txn.retry.backoff.max.ms int 100 0.. fixed
add.partitions.to.txn.retry.backoff.ms int 20 1.. fixed
advertised.listeners list null [+] fixed
alter.config.policy.class.name class null - fixed
alter.log.dirs.replication.quota.window.num int 11 1.. fixed
alter.log.dirs.replication.quota.window.size.seconds int 1 1.. fixed
authorizer.class.name string '' - fixed
auto.create.topics.enable boolean true - fixed
auto.leader.rebalance.enable boolean true - fixed
background.threads int 10 1.. cluster idle
broker.heartbeat.interval.ms int 2000 - fixed
broker.id int -1 - fixed
broker.rack string null - fixed
broker.session.timeout.ms int 9000 - fixed
client.quota.callback.class class null - fixed
compression.gzip.level int -1 1..9|-1 cluster
compression.lz4.level int 9 1..17 cluster
compression.type string producer {uncompressed,zstd,lz4,snappy,gzip,producer} cluster
compression.zstd.level int 3 -131072..22 cluster
config.providers list '' [*] cluster
connection.failed.authentication.delay.ms int 100 0.. fixed
connections.max.idle.ms long 600000 - fixed
connections.max.reauth.ms long 0 - fixed
controlled.shutdown.enable boolean true - fixed
controller.listener.names list required [+] fixed
controller.performance.always.log.threshold.ms long 2000 0.. fixed internal
controller.performance.sample.period.ms long 60000 100.. fixed internal
controller.quorum.append.linger.ms int 25 0.. fixed
controller.quorum.auto.join.enable boolean false - fixed
controller.quorum.bootstrap.servers list '' servers fixed
controller.quorum.election.backoff.max.ms int 1000 0.. fixed
controller.quorum.election.timeout.ms int 1000 0.. fixed
controller.quorum.fetch.max.bytes int 1048576 1.. fixed
controller.quorum.fetch.snapshot.max.bytes int 1048576 1.. fixed
controller.quorum.fetch.timeout.ms int 2000 0.. fixed
controller.quorum.request.timeout.ms int 2000 0.. fixed
controller.quorum.retry.backoff.ms int 20 0.. fixed
controller.quorum.voters list '' voters fixed
controller.quota.window.num int 11 1.. fixed
controller.quota.window.size.seconds int 1 1.. fixed
controller.socket.timeout.ms int 30000 - fixed
cordoned.log.dirs list '' [*] broker
create.topic.policy.class.name class null - fixed
default.replication.factor int 1 - fixed
delegation.token.expiry.check.interval.ms long 3600000 1.. fixed
delegation.token.expiry.time.ms long 86400000 1.. fixed
delegation.token.max.lifetime.ms long 604800000 1.. fixed
delegation.token.secret.key password null - fixed
delete.records.purgatory.purge.interval.requests int 1 - fixed idle
delete.topic.enable boolean true - fixed
early.start.listeners list null [*] fixed
fetch.max.bytes int 57671680 1024.. fixed
fetch.purgatory.purge.interval.requests int 1000 - fixed idle
follower.fetch.last.tiered.offset.enable boolean false - cluster
follower.replication.throttled.rate long null 0.. cluster internal
group.consumer.assignment.interval.ms int 1000 0.. cluster
group.consumer.assignors list uniform,range [+] fixed
group.consumer.heartbeat.interval.ms int 5000 1.. fixed
group.consumer.max.assignment.interval.ms int 15000 0.. fixed
group.consumer.max.heartbeat.interval.ms int 15000 1.. fixed
group.consumer.max.session.timeout.ms int 60000 1.. fixed
group.consumer.max.size int 2147483647 1.. fixed
group.consumer.migration.policy string bidirectional ~{DISABLED,DOWNGRADE,UPGRADE,BIDIRECTIONAL} fixed
group.consumer.min.assignment.interval.ms int 0 0.. fixed
group.consumer.min.heartbeat.interval.ms int 5000 1.. fixed
group.consumer.min.session.timeout.ms int 45000 1.. fixed
group.consumer.regex.refresh.interval.ms int 600000 10000.. fixed internal
group.consumer.session.timeout.ms int 45000 1.. fixed
group.coordinator.append.linger.ms int -1 -1.. fixed
group.coordinator.background.threads int 2 1.. fixed idle
group.coordinator.cached.buffer.max.bytes int 1048588 524288.. cluster
group.coordinator.rebalance.protocols list classic,consumer,streams [+consumer,classic,share,streams] fixed
group.coordinator.threads int 4 1.. fixed idle
group.initial.rebalance.delay.ms int 3000 - fixed
group.max.session.timeout.ms int 1800000 - fixed
group.max.size int 2147483647 1.. fixed
group.min.session.timeout.ms int 6000 - fixed
group.share.assignment.interval.ms int 1000 0.. cluster
group.share.assignors list simple [+] fixed
group.share.delivery.count.limit int 5 2..10 fixed
group.share.heartbeat.interval.ms int 5000 1.. fixed
group.share.initialize.retry.interval.ms int 30000 1.. fixed internal
group.share.max.assignment.interval.ms int 15000 0.. fixed
group.share.max.delivery.count.limit int 10 5..25 fixed
group.share.max.heartbeat.interval.ms int 15000 1.. fixed
group.share.max.partition.max.record.locks int 4000 2000..10000 fixed
group.share.max.record.lock.duration.ms int 60000 30000..3600000 fixed
group.share.max.session.timeout.ms int 60000 1.. fixed
group.share.max.share.sessions int 2000 1.. fixed
group.share.max.size int 200 1..1000 fixed
group.share.min.assignment.interval.ms int 0 0.. fixed
group.share.min.delivery.count.limit int 2 2..5 fixed
group.share.min.heartbeat.interval.ms int 5000 1.. fixed
group.share.min.partition.max.record.locks int 100 100..2000 fixed
group.share.min.record.lock.duration.ms int 15000 1000..30000 fixed
group.share.min.session.timeout.ms int 45000 1.. fixed
group.share.partition.max.record.locks int 2000 100..10000 fixed
group.share.persister.class.name string org.apache.kafka.server.share.persister.DefaultStatePersister - fixed internal
group.share.record.lock.duration.ms int 30000 1000..3600000 fixed
group.share.session.timeout.ms int 45000 1.. fixed
group.streams.assignment.interval.ms int 1000 0.. cluster
group.streams.heartbeat.interval.ms int 5000 1.. fixed
group.streams.initial.rebalance.delay.ms int 3000 0.. fixed
group.streams.max.assignment.interval.ms int 15000 0.. fixed
group.streams.max.heartbeat.interval.ms int 15000 1.. fixed
group.streams.max.session.timeout.ms int 60000 1.. fixed
group.streams.max.size int 2147483647 1.. fixed
group.streams.max.standby.replicas int 2 0.. fixed
group.streams.min.assignment.interval.ms int 0 0.. fixed
group.streams.min.heartbeat.interval.ms int 5000 1.. fixed
group.streams.min.session.timeout.ms int 45000 1.. fixed
group.streams.num.standby.replicas int 0 0.. fixed
group.streams.session.timeout.ms int 45000 1.. fixed
initial.broker.registration.timeout.ms int 60000 - fixed
inter.broker.listener.name string null - fixed
internal.metadata.delete.delay.millis long 60000 - fixed internal
internal.metadata.log.segment.bytes int null - fixed internal
internal.metadata.max.batch.size.in.bytes int 8388608 - fixed internal
kafka.metrics.polling.interval.secs int 10 1.. fixed idle
kafka.metrics.reporters list '' [*] fixed idle
leader.imbalance.check.interval.seconds long 300 1.. fixed
leader.replication.throttled.rate long null 0.. cluster internal
listener.security.protocol.map string SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT - broker
listeners list PLAINTEXT://:9092 [+] broker
log.cleaner.backoff.ms long 15000 0.. cluster
log.cleaner.dedupe.buffer.size long 134217728 - cluster
log.cleaner.delete.retention.ms long 86400000 0.. cluster
log.cleaner.enable boolean true - fixed
log.cleaner.io.buffer.load.factor double 0.9 - cluster
log.cleaner.io.buffer.size int 524288 0.. cluster
log.cleaner.io.max.bytes.per.second double 1.7976931348623157E308 - cluster
log.cleaner.max.compaction.lag.ms long 9223372036854775807 1.. cluster
log.cleaner.min.cleanable.ratio double 0.5 0..1 cluster
log.cleaner.min.compaction.lag.ms long 0 0.. cluster
log.cleaner.threads int 1 0.. cluster idle
log.cleanup.policy list delete [compact,delete] cluster
log.dir list /tmp/kafka-logs [+] fixed
log.dir.failure.timeout.ms long 30000 1.. fixed
log.dirs list null [+] fixed
log.flush.interval.messages long 9223372036854775807 1.. cluster
log.flush.interval.ms long null - cluster
log.flush.offset.checkpoint.interval.ms int 60000 0.. fixed
log.flush.scheduler.interval.ms long 9223372036854775807 - fixed
log.flush.start.offset.checkpoint.interval.ms int 60000 0.. fixed
log.index.interval.bytes int 4096 0.. cluster
log.index.size.max.bytes int 10485760 4.. cluster
log.initial.task.delay.ms long 30000 0.. fixed internal
log.local.retention.bytes long -2 -2.. cluster
log.local.retention.ms long -2 -2.. cluster
log.message.timestamp.after.max.ms long 3600000 0.. cluster
log.message.timestamp.before.max.ms long 9223372036854775807 0.. cluster
log.message.timestamp.type string CreateTime {CreateTime,LogAppendTime} cluster
log.preallocate boolean false - cluster
log.retention.bytes long -1 - cluster
log.retention.check.interval.ms long 300000 1.. fixed
log.retention.hours int 168 - fixed
log.retention.minutes int null - fixed
log.retention.ms long null - cluster
log.roll.hours int 168 1.. fixed
log.roll.jitter.hours int 0 0.. fixed
log.roll.jitter.ms long null - cluster
log.roll.ms long null - cluster
log.segment.bytes int 1073741824 1048576.. cluster
log.segment.delete.delay.ms long 60000 0.. cluster
max.connection.creation.rate int 2147483647 0.. cluster
max.connections int 2147483647 0.. cluster
max.connections.per.ip int 2147483647 0.. cluster
max.connections.per.ip.overrides string '' counts cluster
max.incremental.fetch.session.cache.slots int 1000 0.. fixed
max.request.partition.size.limit int 2000 1.. fixed
message.max.bytes int 1048588 0.. cluster
metadata.log.dir string null - fixed
metadata.log.max.record.bytes.between.snapshots long 20971520 1.. fixed
metadata.log.max.snapshot.interval.ms long 3600000 0.. fixed
metadata.log.segment.bytes int 1073741824 8388608.. fixed
metadata.log.segment.ms long 604800000 - fixed
metadata.max.idle.interval.ms int 500 0.. fixed
metadata.max.retention.bytes long 104857600 - fixed
metadata.max.retention.ms long 604800000 - fixed
metric.reporters list org.apache.kafka.common.metrics.JmxReporter [*] cluster idle
metrics.num.samples int 2 1.. fixed idle
metrics.recording.level string INFO - fixed idle
metrics.sample.window.ms long 30000 1.. fixed idle
min.insync.replicas int 1 1.. cluster
node.id int required 0.. fixed
num.io.threads int 8 1.. cluster idle
num.network.threads int 3 1.. cluster idle
num.partitions int 1 1.. fixed
num.recovery.threads.per.data.dir int 2 1.. cluster idle
num.replica.alter.log.dirs.threads int null - fixed idle
num.replica.fetchers int 1 1.. cluster idle
offset.metadata.max.bytes int 4096 - fixed
offsets.commit.timeout.ms int 5000 1.. fixed
offsets.load.buffer.size int 5242880 1.. fixed
offsets.retention.check.interval.ms long 600000 1.. fixed
offsets.retention.minutes int 10080 1.. fixed
offsets.topic.compression.codec int 0 - fixed
offsets.topic.num.partitions int 50 1.. fixed
offsets.topic.replication.factor short 3 1.. fixed
offsets.topic.segment.bytes int 104857600 1.. fixed
principal.builder.class class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder - broker
process.roles list required [+broker,controller] fixed
producer.id.expiration.check.interval.ms int 600000 1.. fixed internal
producer.id.expiration.ms int 86400000 1.. cluster
producer.purgatory.purge.interval.requests int 1000 - fixed idle
queued.max.request.bytes long -1 - fixed
queued.max.requests int 500 1.. fixed idle
quota.window.num int 11 1.. fixed
quota.window.size.seconds int 1 1.. fixed
remote.fetch.max.wait.ms int 500 1.. cluster
remote.list.offsets.request.timeout.ms long 30000 1.. cluster
remote.log.index.file.cache.total.size.bytes long 1073741824 1.. cluster
remote.log.index.file.cache.ttl.ms long 900000 -1.. fixed internal
remote.log.manager.copier.thread.pool.size int 10 1.. cluster idle
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 1.. cluster
remote.log.manager.copy.quota.window.num int 11 1.. fixed
remote.log.manager.copy.quota.window.size.seconds int 1 1.. fixed
remote.log.manager.expiration.thread.pool.size int 10 1.. cluster idle
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 1.. cluster
remote.log.manager.fetch.quota.window.num int 11 1.. fixed
remote.log.manager.fetch.quota.window.size.seconds int 1 1.. fixed
remote.log.manager.follower.thread.pool.size int 2 1.. cluster idle
remote.log.manager.task.interval.ms long 30000 1.. fixed
remote.log.manager.task.retry.backoff.max.ms long 30000 1.. fixed internal
remote.log.manager.task.retry.backoff.ms long 500 1.. fixed internal
remote.log.manager.task.retry.jitter double 0.2 0..0.5 fixed internal
remote.log.manager.thread.pool.size int 2 1.. fixed idle
remote.log.metadata.custom.metadata.max.bytes int 128 0.. fixed
remote.log.metadata.manager.class.name string org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager filled fixed
remote.log.metadata.manager.class.path string null - fixed
remote.log.metadata.manager.impl.prefix string rlmm.config. filled fixed
remote.log.metadata.manager.listener.name string null filled fixed
remote.log.reader.max.pending.tasks int 100 1.. fixed
remote.log.reader.threads int 10 1.. cluster idle
remote.log.storage.manager.class.name string null filled fixed
remote.log.storage.manager.class.path string null - fixed
remote.log.storage.manager.impl.prefix string rsm.config. filled fixed
remote.log.storage.system.enable boolean false - fixed
replica.alter.log.dirs.io.max.bytes.per.second long null 0.. cluster internal
replica.fetch.backoff.ms int 1000 0.. fixed
replica.fetch.max.bytes int 1048576 0.. fixed
replica.fetch.min.bytes int 1 - fixed
replica.fetch.response.max.bytes int 10485760 0.. fixed
replica.fetch.wait.max.ms int 500 - fixed
replica.high.watermark.checkpoint.interval.ms long 5000 - fixed
replica.lag.time.max.ms long 30000 - fixed
replica.selector.class string null - fixed
replica.socket.receive.buffer.bytes int 65536 - fixed
replica.socket.timeout.ms int 30000 - fixed
replication.quota.window.num int 11 1.. fixed
replication.quota.window.size.seconds int 1 1.. fixed
request.timeout.ms int 30000 - fixed
sasl.client.callback.handler.class class null - fixed
sasl.enabled.mechanisms list GSSAPI [*] broker
sasl.jaas.config password null - broker
sasl.kerberos.kinit.cmd string /usr/bin/kinit - broker
sasl.kerberos.min.time.before.relogin long 60000 - broker
sasl.kerberos.principal.to.local.rules list DEFAULT [*] broker
sasl.kerberos.service.name string null - broker
sasl.kerberos.ticket.renew.jitter double 0.05 - broker
sasl.kerberos.ticket.renew.window.factor double 0.8 - broker
sasl.login.callback.handler.class class null - fixed
sasl.login.class class null - fixed
sasl.login.connect.timeout.ms int null - fixed
sasl.login.read.timeout.ms int null - fixed
sasl.login.refresh.buffer.seconds short 300 - broker
sasl.login.refresh.min.period.seconds short 60 - broker
sasl.login.refresh.window.factor double 0.8 - broker
sasl.login.refresh.window.jitter double 0.05 - broker
sasl.login.retry.backoff.max.ms long 10000 - fixed
sasl.login.retry.backoff.ms long 100 - fixed
sasl.mechanism.controller.protocol string GSSAPI - fixed
sasl.mechanism.inter.broker.protocol string GSSAPI - broker
sasl.oauthbearer.assertion.algorithm string RS256 ~{ES256,RS256} fixed
sasl.oauthbearer.assertion.claim.aud string null - fixed
sasl.oauthbearer.assertion.claim.exp.seconds int 300 0..86400 fixed
sasl.oauthbearer.assertion.claim.iss string null - fixed
sasl.oauthbearer.assertion.claim.jti.include boolean false - fixed
sasl.oauthbearer.assertion.claim.nbf.seconds int 60 0..3600 fixed
sasl.oauthbearer.assertion.claim.sub string null - fixed
sasl.oauthbearer.assertion.file string null - fixed
sasl.oauthbearer.assertion.private.key.file string null - fixed
sasl.oauthbearer.assertion.private.key.passphrase password null - fixed
sasl.oauthbearer.assertion.template.file string null - fixed
sasl.oauthbearer.client.credentials.client.id string null - fixed
sasl.oauthbearer.client.credentials.client.secret password null - fixed
sasl.oauthbearer.clock.skew.seconds int 30 - fixed
sasl.oauthbearer.expected.audience list '' [*] fixed
sasl.oauthbearer.expected.issuer string null - fixed
sasl.oauthbearer.jwks.endpoint.refresh.ms long 3600000 - fixed
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long 10000 - fixed
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long 100 - fixed
sasl.oauthbearer.jwks.endpoint.url string null - fixed
sasl.oauthbearer.jwt.retriever.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever - fixed
sasl.oauthbearer.jwt.validator.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator - fixed
sasl.oauthbearer.scope string null - fixed
sasl.oauthbearer.scope.claim.name string scope - fixed
sasl.oauthbearer.sub.claim.name string sub - fixed
sasl.oauthbearer.token.endpoint.url string null - fixed
sasl.server.callback.handler.class class null - fixed
sasl.server.max.receive.size int 524288 - fixed
security.inter.broker.protocol string PLAINTEXT {PLAINTEXT,SSL,SASL_PLAINTEXT,SASL_SSL} fixed
security.providers string null - fixed
server.max.startup.time.ms long 9223372036854775807 0.. fixed internal
share.coordinator.append.linger.ms int -1 -1.. fixed
share.coordinator.cached.buffer.max.bytes int 1048588 524288.. cluster
share.coordinator.cold.partition.snapshot.interval.ms int 300000 1.. fixed internal
share.coordinator.load.buffer.size int 5242880 1.. fixed
share.coordinator.snapshot.update.records.per.snapshot int 500 0..500 fixed
share.coordinator.state.topic.compression.codec int 0 - fixed
share.coordinator.state.topic.min.isr short 2 1.. fixed
share.coordinator.state.topic.num.partitions int 50 1.. fixed
share.coordinator.state.topic.prune.interval.ms int 300000 1.. fixed internal
share.coordinator.state.topic.replication.factor short 3 1.. fixed
share.coordinator.state.topic.segment.bytes int 104857600 1.. fixed
share.coordinator.threads int 1 1.. fixed idle
share.coordinator.write.timeout.ms int 5000 1.. fixed
share.fetch.purgatory.purge.interval.requests int 1000 - fixed idle
socket.connection.setup.timeout.max.ms long 30000 - fixed
socket.connection.setup.timeout.ms long 10000 - fixed
socket.listen.backlog.size int 50 1.. fixed
socket.receive.buffer.bytes int 102400 - fixed
socket.request.max.bytes int 104857600 1.. fixed
socket.send.buffer.bytes int 102400 - fixed
ssl.allow.dn.changes boolean false - fixed
ssl.allow.san.changes boolean false - fixed
ssl.cipher.suites list '' [*] broker
ssl.client.auth string none {required,requested,none} broker
ssl.enabled.protocols list TLSv1.2,TLSv1.3 [*] broker
ssl.endpoint.identification.algorithm string https - broker
ssl.engine.factory.class class null - broker
ssl.key.password password null - broker
ssl.keymanager.algorithm string SunX509 - broker
ssl.keystore.certificate.chain password null - broker
ssl.keystore.key password null - broker
ssl.keystore.location string null - broker
ssl.keystore.password password null - broker
ssl.keystore.type string JKS - broker
ssl.principal.mapping.rules string DEFAULT - fixed
ssl.protocol string TLSv1.3 - broker
ssl.provider string null - broker
ssl.secure.random.implementation string null - broker
ssl.trustmanager.algorithm string PKIX - broker
ssl.truststore.certificates password null - broker
ssl.truststore.location string null - broker
ssl.truststore.password password null - broker
ssl.truststore.type string JKS - broker
telemetry.max.bytes int 1048576 1.. fixed
transaction.abort.timed.out.transaction.cleanup.interval.ms int 10000 1.. fixed
transaction.max.timeout.ms int 900000 1.. fixed
transaction.partition.verification.enable boolean true - cluster
transaction.remove.expired.transaction.cleanup.interval.ms int 3600000 1.. fixed
transaction.state.log.load.buffer.size int 5242880 1.. fixed
transaction.state.log.min.isr int 2 1.. fixed
transaction.state.log.num.partitions int 50 1.. fixed
transaction.state.log.replication.factor short 3 1.. fixed
transaction.state.log.segment.bytes int 104857600 1.. fixed
transaction.two.phase.commit.enable boolean false - fixed
transactional.id.expiration.ms int 604800000 1.. fixed
unclean.leader.election.enable boolean false - cluster
unclean.leader.election.interval.ms long 300000 1.. fixed internal
unstable.api.versions.enable boolean false - fixed internal
unstable.feature.versions.enable boolean false - fixed internal
"""

BROKER = Table(_ROWS)
