# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Events of a store's entries, delivered to handlers that expect objects of different classes."""

import msgspec
import pytest

from controller_runtime.apis.core.v1 import ConfigMap, Pod, PodStatus
from controller_runtime.cache import UndecodableObjectError
from controller_runtime.cache.codec import CachedObject, entry_of
from controller_runtime.cache.store import Entry
from controller_runtime.machinery import metadata_only


class Renamed(ConfigMap, group="", version="v1", kind="ConfigMap", plural="configmaps"):
    """A class that decodes less than the text holds."""

    @classmethod
    def from_json(cls, data: bytes | str) -> "Renamed":
        del data
        return cls.from_dict({"metadata": {"name": "short"}})


TEXT = b'{"metadata":{"name":"c","uid":"u","resourceVersion":"7","labels":{"a":"b"}}}'


def cached() -> CachedObject[ConfigMap]:
    return CachedObject(ConfigMap, entry_of(TEXT))


def test_each_class_decodes_once_and_for_itself() -> None:
    first = cached()
    other = first.as_kind(Renamed)
    assert other.object.name == "short"
    assert first.metadata.labels == {"a": "b"}
    assert other.as_kind(ConfigMap) is first
    assert first.as_kind(Renamed) is other
    assert (other.key, other.uid, other.resource_version) == (first.key, "u", "7")


def test_a_write_is_marked_for_every_class() -> None:
    first = cached()
    before = first.as_kind(Renamed)
    first.mark_own_write()
    assert (first.own_write, before.own_write, first.as_kind(metadata_only(ConfigMap)).own_write) == (
        True,
    ) * 3


def test_a_failed_read_is_counted_and_leaves_the_metadata() -> None:
    failures: list[None] = []
    entry = entry_of(b'{"metadata":{"name":"c"},"data":[]}')
    obj = CachedObject(ConfigMap, entry, failed=lambda: failures.append(None))
    with pytest.raises(UndecodableObjectError):
        obj.object  # noqa: B018  # reading it decodes it
    assert len(failures) == 1
    assert not obj.is_decodable
    assert obj.metadata.name == "c"
    assert obj.outline().object.name == "c"


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(entry_of(b'{"metadata":{"name":"p"},"status":{"phase":[]}}'), id="another shape"),
        pytest.param(
            msgspec.structs.replace(entry_of(b'{"metadata":{"name":"p"}}'), too_large_reason="too large"),
            id="refused",
        ),
    ],
)
def test_a_part_that_cannot_be_decoded_fails_as_the_object_does(entry: Entry) -> None:
    with pytest.raises(UndecodableObjectError):
        CachedObject(Pod, entry).part("status", PodStatus)
    with pytest.raises(UndecodableObjectError):
        CachedObject(Pod, entry).only("status")
