"""Groups and transactions by Apache Kafka's tools: steps as in kafka_tool_steps.py, after them."""

from __future__ import annotations

from tests.interop.kafka_tool_acts import (
    Act,
    commits,
    disperse,
    gather,
    hanging,
    letters,
    transaction,
)
from tests.interop.kafka_tool_step import Step, steps
from tests.support.raw_offsets import At

# commits only at its end, however long that takes
_PATIENT = "--timeout-ms 30000 --command-config {dir}/patient.properties"
_FORMATTER = "org.apache.kafka.tools.consumer"
_PLAN = "--reset-offsets --group resting"
_BOTH = f"{_PLAN} --topic letters"

GROUPS: list[Step | Act] = [
    *steps("consumer-groups", "--list", "--describe --group nobody", "--describe --all-groups"),
    *steps(
        "topics",
        "--create --topic letters --partitions 2 --config retention.ms=-1",
        "--create --topic bills --partitions 1 --config retention.ms=-1",
        "--create --topic never-written --partitions 1",
    ),
    letters("letters", 10, 4),
    letters("bills", 5),
    gather("readers", {"letters": [0], "bills": [0]}, {"letters": [1]}, instances=(None, "desk-2")),
    commits("readers", "letters", At(0, 4), At(1, 4, "noted")),
    gather("workers", {}, protocol_type="connect"),
    commits("resting", "letters", At(0, 3), At(1, 1)),
    commits("resting", "bills", At(0, 5)),
    *steps(
        "consumer-groups",
        "--list",
        "--list --state",
        "--list --state stable,empty",
        "--list --state Dead",
        "--list --state nonsense",
        "--list --type",
        "--list --type classic",
        "--list --type consumer",
        "--list --type nonsense",
        "--list --state stable --type classic",
        "--describe --group readers",
        "--describe --group readers --offsets",
        "--describe --group readers --offsets --verbose",
        "--describe --group readers --members",
        "--describe --group readers --members --verbose",
        "--describe --group readers --state",
        "--describe --group readers --state --verbose",
        "--describe --group resting",
        "--describe --group resting --members",
        "--describe --group resting --members --verbose",
        "--describe --group resting --state",
        "--describe --group nobody",
        "--describe --group nobody --members",
        "--describe --group nobody --state",
        "--describe --group workers",
        "--describe --group workers --members",
        "--describe --group readers --group resting --group nobody",
        "--describe --all-groups",
        "--describe --all-groups --members",
        "--describe --all-groups --state",
    ),
    *steps(
        "groups",
        "--list",
        "--list --consumer",
        "--list --group-type classic",
        "--list --group-type consumer",
        "--list --group-type nonsense",
        "--list --protocol connect",
        "--list --protocol consumer --group-type classic",
        "--list --share",
        "--list --streams",
    ),
    *steps("consumer-groups", "--validate-regex 'a.*'", "--validate-regex '(('", at=""),
]

RESETS: list[Step | Act] = [
    *steps(
        "consumer-groups",
        # each mode, on paper and for good
        f"{_BOTH} --to-earliest",
        f"{_BOTH} --to-earliest --dry-run",
        f"{_BOTH} --to-latest --dry-run",
        f"{_BOTH} --to-current --dry-run",
        f"{_BOTH} --to-offset 2 --dry-run",
        f"{_BOTH} --to-offset 999 --dry-run",
        f"{_BOTH} --shift-by 1 --dry-run",
        f"{_BOTH} --shift-by -100 --dry-run",
        f"{_BOTH} --by-duration PT1H --dry-run",
        f"{_BOTH} --by-duration P9999D --dry-run",
        f"{_BOTH} --to-datetime 2023-11-14T22:13:20.003Z --dry-run",
        f"{_BOTH} --to-datetime 2038-01-01T00:00:00.000 --dry-run",
        f"{_BOTH} --to-datetime yesterday --dry-run",
        f"{_BOTH} --to-earliest --to-latest --dry-run",
        f"{_BOTH} --dry-run",
        f"{_PLAN} --to-earliest --dry-run",
        f"{_PLAN} --all-topics --to-latest --dry-run",
        f"{_PLAN} --all-topics --to-latest --dry-run --export",
        f"{_PLAN} --topic letters:1 --topic bills --to-earliest --dry-run",
        f"{_PLAN} --topic letters:0,1 --to-latest --dry-run",
        f"{_PLAN} --topic letters:7 --to-latest --dry-run",
        f"{_PLAN} --topic no-such --to-earliest --dry-run",
        f"{_PLAN} --topic never-written --to-current --dry-run",
        f"{_PLAN} --from-file {{dir}}/offsets.csv --dry-run",
        f"{_PLAN} --from-file {{dir}}/offsets.csv --execute",
        "--describe --group resting",
        f"{_BOTH} --shift-by 1 --execute",
        f"{_BOTH} --to-datetime 2023-11-14T22:13:20.003Z --execute",
        f"{_PLAN} --topic letters:1 --to-offset 1 --execute",
        f"{_PLAN} --topic letters:1 --by-duration PT1H --execute",
        f"{_PLAN} --topic bills --to-earliest --execute --export",
        f"{_PLAN} --topic never-written --to-latest --execute",
        f"{_PLAN} --all-topics --to-current --execute",
        "--describe --group resting",
        # several groups, all of them, new ones, and those with members
        "--reset-offsets --group resting --group early --topic letters --to-earliest --execute",
        "--reset-offsets --group early --group late --from-file {dir}/offsets-of-two.csv --execute",
        "--reset-offsets --group early --group late --all-topics --to-current --dry-run --export",
        "--reset-offsets --all-groups --all-topics --to-latest --dry-run",
        "--reset-offsets --group readers --topic letters --to-earliest --execute",
        "--reset-offsets --group readers --topic letters --to-earliest --dry-run",
        "--reset-offsets --group workers --topic letters --to-earliest --execute",
        "--describe --group early",
        "--describe --group late",
    ),
]

DELETIONS: list[Step | Act] = [
    *steps(
        "consumer-groups",
        "--delete-offsets --group resting --topic letters:0",
        "--delete-offsets --group resting --topic bills --topic letters:1",
        "--delete-offsets --group resting --topic no-such",
        "--delete-offsets --group resting --topic letters:7",
        "--delete-offsets --group nobody --topic letters",
        "--delete-offsets --group readers --topic letters",
        "--delete-offsets --group readers --topic never-written",
        "--delete-offsets --group workers --topic letters",
        "--describe --group resting",
        "--delete --group readers",
        "--delete --group nobody",
        "--delete --group early",
        "--delete --group late --group readers --group nobody",
        "--list",
    ),
    disperse("readers"),
    *steps(
        "consumer-groups",
        "--describe --group readers",
        "--describe --group readers --members",
        "--describe --group readers --state",
        "--list --state",
        "--delete --group readers",
        "--describe --group readers",
        "--delete --all-groups",
        "--list",
    ),
    disperse("workers"),
    *steps("groups", "--list"),
    *steps("consumer-groups", "--delete --all-groups"),
]

GROUP_CONFIGS: list[Step | Act] = [
    *steps(
        "configs",
        "--describe --entity-type groups",
        "--alter --entity-type groups --entity-name readers"
        " --add-config consumer.session.timeout.ms=50000,consumer.heartbeat.interval.ms=6000",
        "--describe --entity-type groups",
        "--describe --entity-type groups --entity-name readers",
        "--describe --entity-type groups --entity-name readers --all",
        "--describe --entity-type groups --entity-name nobody",
        "--describe --group readers",
        "--alter --entity-type groups --entity-name readers --add-config no.such.setting=1",
        "--alter --entity-type groups --entity-name readers"
        " --add-config share.isolation.level=read_committed",
        "--alter --entity-type groups --entity-name readers"
        " --delete-config consumer.session.timeout.ms,consumer.heartbeat.interval.ms,share.isolation.level",
        "--describe --entity-type groups",
    ),
]

CONSUMERS: list[Step | Act] = [
    *steps(
        "console-consumer",
        f"--topic bills --group console --from-beginning --max-messages 3 {_PATIENT}",
        f"--topic bills --group console --max-messages 2 {_PATIENT}",
        f"--include 'bill.*' --group patterns --from-beginning --max-messages 5 {_PATIENT}",
    ),
    *steps("consumer-groups", "--describe --group console", "--describe --group patterns"),
    Step(
        "verifiable-producer",
        "--bootstrap-server {bootstrap} --topic never-written --max-messages 5 --value-prefix 7"
        " --repeating-keys 2",
    ),
    Step(
        "verifiable-consumer",
        "--bootstrap-server {bootstrap} --topic never-written --group-id verified --max-messages 5 --verbose"
        " --command-config {dir}/patient.properties",
    ),
    Step(
        "consumer-perf-test",
        "--bootstrap-server {bootstrap} --topic bills --num-records 5 --group measured --timeout 30000"
        " --command-config {dir}/patient.properties",
    ),
    *steps(
        "consumer-groups",
        "--describe --group verified",
        "--describe --group measured",
    ),
    *steps(
        "streams-application-reset",
        "--input-topics letters --dry-run",
        "--input-topics letters",
        "--input-topics letters,bills --to-offset 2",
        "--input-topics no-such",
        at="--bootstrap-server {bootstrap} --application-id counting ",
    ),
    *steps("consumer-groups", "--describe --group counting"),
    gather("counting", {"letters": [0, 1]}),
    *steps(
        "streams-application-reset",
        "--input-topics letters",
        "--input-topics letters --force",
        at="--bootstrap-server {bootstrap} --application-id counting ",
    ),
    *steps("consumer-groups", "--describe --group counting --state"),
]

_ASK = "--topic payments --partition 0 --offset earliest --timeout-ms 30000 --max-messages"

TRANSACTIONS: list[Step | Act] = [
    *steps("transactions", "list", "describe --transactional-id nobody"),
    *steps("topics", "--create --topic payments --partitions 1"),
    transaction("cashier", "payments", "one", "two", commit=True),
    transaction("cashier", "payments", "three", commit=False),
    transaction("teller", "payments", "four", commit=True, group="tellers"),
    transaction("slow", "payments", "five", "six", commit=None),
    transaction("cashier", "payments", "seven", commit=True),
    transaction("half", "bills", "hundred", commit=None, group="tellers"),
    *steps(
        "transactions",
        "list",
        "list --duration-filter 3600000",
        "list --duration-filter -1",
        "list --transactional-id-pattern 's.*|half'",
        "list --transactional-id-pattern '(('",
        "list --transactional-id-pattern nobody --duration-filter 1",
        "describe --transactional-id slow",
        "describe --transactional-id half",
        "describe --transactional-id cashier",
        "describe --transactional-id nobody",
        "describe-producers --topic payments --partition 0",
        "describe-producers --topic payments --partition 0 --broker-id 1",
        "find-hanging --broker-id 1",
        "find-hanging --broker-id 1 --max-transaction-timeout 0",
        "find-hanging --topic payments --max-transaction-timeout 0",
        "find-hanging --topic payments --partition 0 --max-transaction-timeout 0",
        "find-hanging",
        "find-hanging --broker-id 9",
    ),
    *steps(
        "console-consumer",
        f"{_ASK} 3 --isolation-level read_committed",
        f"{_ASK} 7 --isolation-level read_uncommitted",
    ),
    *steps(
        "get-offsets",
        "--topic payments",
        "--topic payments --time latest --command-config {dir}/committed.properties",
    ),
    *steps("consumer-groups", "--describe --group tellers"),
    *steps(
        "transactions",
        "forceTerminateTransaction --transactionalId slow",
        "forceTerminateTransaction --transactionalId nobody",
        "describe --transactional-id slow",
        "abort --topic payments --partition 0 --start-offset 99",
        "abort --topic payments --partition 0 --start-offset 1",
        "abort --topic payments --partition 0",
    ),
    *steps(
        "configs",
        "--alter --entity-type brokers --entity-default"
        " --add-config transaction.partition.verification.enable=false",
    ),
    hanging("payments", "eight", "nine"),
    *steps(
        "transactions",
        "describe-producers --topic payments --partition 0",
        "find-hanging --broker-id 1",
        "find-hanging --broker-id 1 --max-transaction-timeout 0",
        "find-hanging --topic payments --max-transaction-timeout 0",
    ),
    *steps("console-consumer", f"{_ASK} 4 --isolation-level read_committed"),
    *steps("transactions", "abort --topic payments --partition 0 --start-offset 12"),
    *steps(
        "transactions",
        "find-hanging --broker-id 1 --max-transaction-timeout 0",
        "describe-producers --topic payments --partition 0",
    ),
    *steps("console-consumer", f"{_ASK} 4 --isolation-level read_committed"),
    *steps(
        "configs",
        "--alter --entity-type brokers --entity-default"
        " --delete-config transaction.partition.verification.enable",
    ),
    Step(
        "producer-perf-test",
        "--topic payments --num-records 1000 --record-size 10 --throughput -1"
        " --bootstrap-server {bootstrap} --transactional-id measured --transaction-duration-ms 60000",
    ),
    *steps("transactions", "describe --transactional-id measured"),
]

INTERNAL: list[Step | Act] = [
    *steps(
        "topics",
        "--list",
        "--describe --topic __consumer_offsets",
        "--describe --topic __transaction_state",
    ),
    *steps(
        "console-consumer",
        f"60 --topic __consumer_offsets --formatter {_FORMATTER}.OffsetsMessageFormatter",
        f"60 --topic __consumer_offsets --formatter {_FORMATTER}.GroupMetadataMessageFormatter",
        f"20 --topic __transaction_state --formatter {_FORMATTER}.TransactionLogMessageFormatter",
        at="--bootstrap-server {bootstrap} --partition 0 --offset earliest --timeout-ms 30000"
        " --max-messages ",
    ),
    *steps(
        "dump-log",
        "--offsets-decoder --skip-record-metadata"
        " --files {data}/__consumer_offsets-0/00000000000000000000.log",
        "--transaction-log-decoder --skip-record-metadata"
        " --files {data}/__transaction_state-0/00000000000000000000.log",
        "--print-data-log --files {data}/payments-0/00000000000000000000.log --max-bytes 1000",
        at="",
    ),
]

FEATURES: list[Step | Act] = [
    *steps(
        "features",
        "describe",
        "upgrade --feature transaction.version=2",
        "upgrade --feature transaction.version=3",
        "downgrade --feature transaction.version=1",
        "downgrade --feature transaction.version=1 --dry-run",
        "downgrade --feature transaction.version=1 --unsafe",
        "upgrade --feature transaction.version=2 --dry-run",
        "upgrade --feature transaction.version=2",
        "disable --feature transaction.version",
        "upgrade --release-version 4.3 --dry-run",
        "downgrade --release-version 4.0 --dry-run",
        "upgrade --release-version 9.9",
        "feature-dependencies --feature transaction.version=2",
    ),
]

# the topic of the groups is gone, and made anew
ANEW: list[Step | Act] = [
    *steps("topics", "--delete --topic __consumer_offsets"),
    *steps(
        "console-consumer",
        f"--topic bills --group console --from-beginning --max-messages 5 {_PATIENT}",
    ),
    *steps("consumer-groups", "--describe --group console", "--list --state"),
]

STEPS = [
    *GROUPS,
    *RESETS,
    *DELETIONS,
    *GROUP_CONFIGS,
    *CONSUMERS,
    *TRANSACTIONS,
    *INTERNAL,
    *FEATURES,
    *ANEW,
]
