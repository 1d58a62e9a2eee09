"""Access rules and credentials in the metadata: a node that cannot enforce them does not start, or warns.

And what a start leaves behind that is refused, for this or another reason.
"""

from __future__ import annotations

import logging
import socket
from pathlib import Path

import pytest

from barnabas.broker.settings.unenforced import UnenforcedSecurity, refuse_unenforced
from barnabas.broker.storage.formatting import METADATA_DIRECTORY
from barnabas.log.names import CLEAN_SHUTDOWN
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
)
from barnabas.metadata.replay import replay_all
from barnabas.raft.snapshot import SnapshotId, build_snapshot
from tests.broker.test_quorum_snapshots import KEPT
from tests.support.serve_process import ServeProcess


def image_of(*kinds: type) -> ClusterImage:
    return replay_all(ClusterImage(), (record for record in KEPT if isinstance(record, kinds)))


def test_a_node_does_not_start_on_what_it_cannot_enforce() -> None:
    with pytest.raises(UnenforcedSecurity) as refusal:
        refuse_unenforced(image_of(object), "/data", allowed=False)
    told = str(refusal.value)
    assert "/data holds 1 access rules (ACLs), 1 SCRAM credentials, 1 delegation tokens" in told
    for next_step in ("kafka-acls.sh", "--delete-config", "barnabas.allow.unenforced.security=true"):
        assert next_step in told


def test_it_names_only_what_is_there() -> None:
    with pytest.raises(UnenforcedSecurity) as refusal:
        refuse_unenforced(image_of(UserScramCredentialRecord), "/data", allowed=False)
    assert "access rules" not in str(refusal.value)
    assert "kafka-acls" not in str(refusal.value)


def test_quotas_are_no_reason_nor_is_what_was_removed() -> None:
    image = image_of(ClientQuotaRecord, AccessControlEntryRecord)
    image = replay_all(image, [RemoveAccessControlEntryRecord(id=b"acl id, 16 bytes")])
    refuse_unenforced(image, "/data", allowed=False)


def test_where_it_is_allowed_every_start_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        refuse_unenforced(image_of(object), "/data", allowed=True)
    assert "kept and NOT enforced" in caplog.text


def test_a_start_that_is_refused_leaves_a_clean_directory_clean(tmp_path: Path) -> None:
    """Whatever keeps it from starting: here a port that is taken, then a record of a newer Kafka."""
    data = tmp_path / "data"
    with ServeProcess(data) as node:
        node.stop()
    mark = (data / CLEAN_SHUTDOWN).read_text()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "{}:{}".format(*taken.getsockname())
        assert refused(data, listen=address).count("cannot listen") == 1
    assert (data / CLEAN_SHUTDOWN).read_text() == mark
    newer = build_snapshot([b"\x01\x63\x00"], 0)
    (data / METADATA_DIRECTORY / SnapshotId(5000, 9).name).write_bytes(newer)
    log = (data / METADATA_DIRECTORY / "00000000000000000000.log").read_bytes()
    assert "a record of type 99" in refused(data)
    assert (data / METADATA_DIRECTORY / "00000000000000000000.log").read_bytes() == log
    assert (data / CLEAN_SHUTDOWN).read_text() == mark


def refused(data: Path, listen: str = "127.0.0.1:0") -> str:
    """What a start says that is refused."""
    node = ServeProcess(data, listen=listen)
    node.spawn()
    assert node.wait() == 1
    return node.log()
