# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0

import pydantic
import pytest

from controller_runtime.apis.core.v1 import ConfigMap, Pod, PodStatus
from controller_runtime.machinery import LazyObject, NamespacedName

TEXT = (
    b'{"metadata":{"name":"c","namespace":"n","uid":"u","resourceVersion":"7",'
    b'"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"o"}]},"data":%s}'
)


def test_a_text_says_which_object_it_is_whatever_the_shape_of_the_rest() -> None:
    lazy = LazyObject(ConfigMap, TEXT % b"[]")
    assert [owner.name for owner in lazy.owner_references] == ["p"]
    assert (lazy.key, lazy.uid, lazy.resource_version) == (NamespacedName("n", "c"), "u", "7")
    assert lazy.metadata is lazy.metadata
    assert lazy.known is None
    with pytest.raises(pydantic.ValidationError, match="data"):
        lazy.object  # noqa: B018  # reading it decodes it


def test_the_object_is_decoded_once_and_gives_the_metadata() -> None:
    lazy = LazyObject(ConfigMap, TEXT % b'{"a":"1"}')
    assert lazy.object.data == {"a": "1"}
    assert lazy.known is lazy.object
    assert lazy.metadata is lazy.object.metadata


def test_a_decoded_object_is_a_lazy_one() -> None:
    obj = ConfigMap.from_json(TEXT % b"{}")
    lazy = LazyObject.of(obj)
    assert lazy.object is obj
    assert (lazy.kind, lazy.key, lazy.uid, lazy.own_write) == (ConfigMap, obj.key, "u", False)
    assert lazy.owner_references is obj.metadata.owner_references
    assert LazyObject.of(lazy) is lazy


def test_odd_owners_are_an_error_of_the_metadata() -> None:
    lazy = LazyObject(ConfigMap, b'{"metadata":{"name":"c","ownerReferences":"p"}}')
    with pytest.raises(pydantic.ValidationError, match="ownerReferences"):
        lazy.owner_references  # noqa: B018  # reading it decodes it


def test_a_part_is_decoded_without_the_rest_and_is_the_objects_once_that_is_decoded() -> None:
    text = b'{"metadata":{"name":"p","namespace":"n"},"spec":%s,"status":%s}'
    lazy = LazyObject(Pod, text % (b"[]", b'{"phase":"Running"}'))
    assert lazy.part("status", PodStatus).phase == "Running"
    assert lazy.known is None
    for absent in (LazyObject(Pod, text % (b"{}", b"null")), LazyObject(Pod, b'{"metadata":{"name":"p"}}')):
        assert absent.part("status", PodStatus).phase is None
    with pytest.raises(pydantic.ValidationError, match="phase"):
        LazyObject(Pod, text % (b"{}", b'{"phase":[]}')).part("status", PodStatus)
    decoded = LazyObject(Pod, text % (b"{}", b'{"phase":"Failed"}'))
    assert decoded.object.status is decoded.part("status", PodStatus)


def test_only_some_fields_are_decoded_once_and_serve_their_parts() -> None:
    text = b'{"metadata":{"name":"p","namespace":"n"},"spec":[],"status":{"phase":"Running"}}'
    lazy = LazyObject(Pod, text)
    only = lazy.only("status")
    assert (only.name, only.spec.node_name, only.status.phase) == ("p", None, "Running")
    assert lazy.only("status") is only
    assert lazy.part("status", PodStatus) is only.status
    assert lazy.known is None
    assert LazyObject(Pod, b'{"metadata":{"name":"p"}}').only("status").status.phase is None
    decoded = LazyObject(Pod, known=only)
    assert decoded.only("spec") is only
