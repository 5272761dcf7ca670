# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from controller_runtime.apis.meta.v1 import OwnerReference
from controller_runtime.machinery import NamespacedName

from pkg.podgrouper.podgroup import Metadata, Rules, SubGroupMetadata
from pkg.podgrouper.podgroup.settled import Settled

OWNER = OwnerReference(api_version="v1", kind="Pod", name="p", uid="u")


def described(name: str, parts: int = 0) -> Metadata:
    groups = [SubGroupMetadata(name=str(number)) for number in range(parts)]
    return Metadata(name=name, namespace="n", owner=OWNER, sub_groups=groups)


def key(name: str) -> NamespacedName:
    return NamespacedName("n", name)


def test_version_description_and_rules_must_be_the_same() -> None:
    settled = Settled()
    settled.add(key("a"), "1", described("a", 2), Rules.V0_17)

    assert settled.has(key("a"), "1", described("a", 2), Rules.V0_17)
    assert not settled.has(key("a"), "2", described("a", 2), Rules.V0_17)
    assert not settled.has(key("a"), "1", described("a", 3), Rules.V0_17)
    assert not settled.has(key("a"), "1", described("a", 2), Rules.V0_13)
    assert not settled.has(key("b"), "", described("b"), Rules.V0_13)


def test_the_oldest_are_forgotten_by_the_number_of_their_subgroups() -> None:
    settled = Settled(capacity=10)
    for name in "abc":
        settled.add(key(name), "1", described(name, 3), Rules.V0_17)

    assert [settled.has(key(name), "1", described(name, 3), Rules.V0_17) for name in "abc"] == [
        False,
        True,
        True,
    ]
    settled.add(key("d"), "1", described("d", 100), Rules.V0_17)
    assert len(settled) == 0
