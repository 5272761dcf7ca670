# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Objects: typed, unstructured, metadata only; and the scheme that tells which."""

import pytest

from pkg.apis.core.v1 import Node, Pod
from pkg.apis.machinery.gvk import GVK, NamespacedName
from pkg.apis.machinery.object import Unstructured, metadata_only, unstructured
from pkg.apis.machinery.scheme import Scheme
from pkg.apis.scheme import default_scheme
from pkg.apis.trainer.v1alpha1 import TrainJob

WIDGET = GVK("example.com", "v1", "Widget")


def test_a_kind_knows_its_names() -> None:
    assert TrainJob.gvk.api_version == "trainer.kubeflow.org/v1alpha1"
    assert TrainJob.resource is not None
    assert TrainJob.resource.group_resource == "trainjobs.trainer.kubeflow.org"
    assert str(TrainJob.gvk.group_kind) == "TrainJob.trainer.kubeflow.org"
    assert Node.resource is not None
    assert not Node.resource.namespaced


def test_an_object_carries_its_type_and_its_key() -> None:
    pod = Pod.from_dict({"metadata": {"name": "a", "namespace": "n", "labels": {"x": "y"}}})
    assert pod.to_dict() == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "n", "labels": {"x": "y"}},
    }
    assert pod.key == NamespacedName("n", "a")
    assert (pod.labels, pod.annotations) == ({"x": "y"}, {})


def test_an_unstructured_object_is_read_by_path() -> None:
    widget = Unstructured.wrap({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"a": {"b": 1}}})
    assert type(widget) is unstructured(WIDGET)
    assert widget.nested("spec", "a", "b") == 1
    assert widget.nested("spec", "x", "b") is None
    widget["spec"] = 2
    assert widget["spec"] == 2


def test_metadata_only_keeps_the_kinds_own_names() -> None:
    kind = metadata_only(Pod)
    assert kind is metadata_only(Pod)
    assert (kind.gvk, kind.resource) == (Pod.gvk, Pod.resource)


def test_a_scheme_decodes_by_what_the_object_says() -> None:
    scheme = default_scheme()
    assert isinstance(scheme.decode({"apiVersion": "v1", "kind": "Pod"}), Pod)
    assert isinstance(scheme.decode({"apiVersion": "example.com/v1", "kind": "Widget"}), Unstructured)
    assert TrainJob.gvk in scheme
    assert WIDGET not in scheme


def test_two_classes_for_one_kind_are_refused() -> None:
    scheme = Scheme(Pod, Pod)
    with pytest.raises(ValueError, match="Pod is registered as Pod already"):
        scheme.register(unstructured(Pod.gvk))
