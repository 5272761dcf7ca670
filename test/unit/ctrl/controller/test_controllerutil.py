# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable

import pytest

from pkg.apis.batch.v1 import Job
from pkg.apis.core.v1 import Node, Pod
from pkg.apis.machinery.object import Object, ObjectMeta, OwnerReference
from pkg.ctrl.controller import controllerutil as util


def job(name: str = "owner", *, namespace: str = "ns") -> Job:
    return Job(metadata=ObjectMeta(namespace=namespace, name=name, uid=f"uid-{name}"))


def pod(*owners: OwnerReference, namespace: str = "ns") -> Pod:
    return Pod(metadata=ObjectMeta(namespace=namespace, name="pod", owner_references=list(owners) or None))


def references(obj: Object) -> list[dict[str, object]]:
    return [ref.to_dict() for ref in obj.metadata.owner_references or ()]


def reference(name: str, **more: object) -> dict[str, object]:
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{name}", **more}


def test_a_controller_reference_says_that_it_controls_and_blocks_deletion() -> None:
    obj = pod()
    util.set_controller_reference(job(), obj)
    assert references(obj) == [reference("owner", controller=True, blockOwnerDeletion=True)]
    util.set_controller_reference(job(), obj, block_owner_deletion=False)
    assert references(obj) == [reference("owner", controller=True, blockOwnerDeletion=False)]


def test_there_is_one_controller() -> None:
    obj = pod()
    util.set_controller_reference(job("first"), obj)
    with pytest.raises(util.AlreadyOwnedError) as refused:
        util.set_controller_reference(job("second"), obj)
    assert str(refused.value) == "Object ns/pod is already owned by another Job controller first"
    assert (refused.value.owner.name, len(references(obj))) == ("first", 1)


def test_an_owner_becomes_the_controller_and_keeps_its_place() -> None:
    obj = pod()
    util.set_owner_reference(job("a"), obj)
    util.set_owner_reference(job("b"), obj, block_owner_deletion=True)
    util.set_controller_reference(job("a"), obj)
    assert references(obj) == [
        reference("a", controller=True, blockOwnerDeletion=True),
        reference("b", blockOwnerDeletion=True),
    ]


def test_the_same_owner_in_another_version_is_the_same_owner() -> None:
    old = OwnerReference(api_version="batch/v1beta1", kind="Job", name="owner", uid="old", controller=True)
    obj = pod(old)
    util.set_controller_reference(job(), obj)
    assert references(obj) == [reference("owner", controller=True, blockOwnerDeletion=True)]


@pytest.mark.parametrize("set_reference", [util.set_controller_reference, util.set_owner_reference])
def test_an_owner_lives_in_the_same_namespace_or_in_none(
    set_reference: Callable[[Object, Object], None],
) -> None:
    with pytest.raises(util.OwnerReferenceError, match="cross-namespace owner references are disallowed"):
        set_reference(job(namespace="other"), pod())
    with pytest.raises(util.OwnerReferenceError, match="must not have a namespace-scoped owner"):
        set_reference(job(), Node(metadata=ObjectMeta(name="node")))
    obj = pod()
    set_reference(Node(metadata=ObjectMeta(name="node", uid="u")), obj)
    assert references(obj)[0]["apiVersion"] == "v1"


def test_a_reference_is_removed_by_group_kind_and_name() -> None:
    obj = pod()
    util.set_owner_reference(job("a"), obj)
    util.set_controller_reference(job("b"), obj)
    assert util.has_owner_reference(obj.metadata.owner_references, job("a"))
    util.remove_owner_reference(job("a"), obj)
    assert not util.has_owner_reference(obj.metadata.owner_references, job("a"))
    assert [ref["name"] for ref in references(obj)] == ["b"]
    with pytest.raises(util.OwnerReferenceError, match="does not have an owner reference"):
        util.remove_owner_reference(job("a"), obj)


def test_only_the_controller_is_removed_as_one() -> None:
    obj = pod()
    util.set_owner_reference(job("a"), obj)
    with pytest.raises(util.OwnerReferenceError, match="is not controlled by"):
        util.remove_controller_reference(job("a"), obj)
    util.set_controller_reference(job("b"), obj)
    with pytest.raises(util.OwnerReferenceError, match="is not controlled by"):
        util.remove_controller_reference(job("a"), obj)
    assert util.has_controller_reference(obj)
    util.remove_controller_reference(job("b"), obj)
    assert not util.has_controller_reference(obj)
    assert [ref["name"] for ref in references(obj)] == ["a"]


def test_finalizers_are_added_once_and_removed_wholly() -> None:
    obj = pod()
    assert util.add_finalizer(obj, "a/b")
    assert not util.add_finalizer(obj, "a/b")
    assert util.add_finalizer(obj, "c/d")
    assert obj.metadata.finalizers == ["a/b", "c/d"]
    obj.metadata.finalizers.append("a/b")
    assert util.remove_finalizer(obj, "a/b")
    assert not util.remove_finalizer(obj, "a/b")
    assert (obj.metadata.finalizers, util.contains_finalizer(obj, "c/d")) == (["c/d"], True)


def test_lists_that_somebody_else_holds_are_not_changed() -> None:
    obj = pod()
    obj.metadata.finalizers = finalizers = ["a"]
    obj.metadata.owner_references = owners = [OwnerReference(name="x")]
    util.add_finalizer(obj, "b")
    util.set_owner_reference(job(), obj)
    util.remove_finalizer(obj, "a")
    assert (finalizers, len(owners)) == (["a"], 1)
