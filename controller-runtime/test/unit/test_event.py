# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Events that a test creates; the events of a cache are tested with its sources."""

import pytest

from controller_runtime.apis.core.v1 import Pod
from controller_runtime.event import CreateEvent, DeleteEvent, GenericEvent, UpdateEvent
from ctrl_testkit.small import make_pod


def test_an_event_gives_its_object_its_metadata_and_its_key() -> None:
    pod = make_pod("a")
    for event in (CreateEvent(pod, True), DeleteEvent(pod, True), GenericEvent(pod)):
        assert (event.object, event.metadata, event.key) == (pod, pod.metadata, pod.key)


def test_a_change_gives_both_sides() -> None:
    old, new = make_pod("a", resourceVersion="1"), make_pod("a", resourceVersion="2")
    event = UpdateEvent(old, new)
    assert (event.old, event.new, event.key) == (old, new, new.key)
    assert (event.old_metadata, event.new_metadata) == (old.metadata, new.metadata)


@pytest.mark.parametrize(("versions", "changed"), [("11", False), ("12", True)])
def test_a_resync_is_no_change(versions: str, changed: bool) -> None:
    old, new = (make_pod("a", resourceVersion=version) for version in versions)
    assert UpdateEvent(old, new).changed is changed


def test_an_event_may_name_its_kind_and_cannot_be_changed() -> None:
    pod = Pod()
    for made in (
        CreateEvent[Pod](pod, is_in_initial_list=True),
        UpdateEvent[Pod](pod, pod),
        DeleteEvent[Pod](pod),
        GenericEvent[Pod](pod),
    ):
        with pytest.raises(AttributeError):
            made.object = pod  # type: ignore[misc,union-attr]  # asserted to fail
