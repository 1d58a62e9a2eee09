"""Access rules and credentials in the metadata: a node that cannot enforce them does not start, or warns."""

from __future__ import annotations

import logging

import pytest

from barnabas.broker.unenforced import UnenforcedSecurity, refuse_unenforced
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    RemoveAccessControlEntryRecord,
    UserScramCredentialRecord,
)
from tests.broker.test_quorum_snapshots import KEPT


def image_of(*kinds: type) -> ClusterImage:
    image = ClusterImage()
    for record in KEPT:
        if isinstance(record, kinds):
            image.replay(record)
    return image


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
    image.replay(RemoveAccessControlEntryRecord(id=b"acl id, 16 bytes"))
    refuse_unenforced(image, "/data", allowed=False)


def test_where_it_is_allowed_every_start_warns(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        refuse_unenforced(image_of(object), "/data", allowed=True)
    assert "kept and NOT enforced" in caplog.text
