# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The in-memory client's knowledge of kinds, from CustomResourceDefinitions, models and Kubernetes' own types."""

from typing import Any

import pytest

from controller_runtime.apis import default_scheme
from controller_runtime.apis.core.v1 import Namespace, Pod
from controller_runtime.fake import FakeClient, kinds, ownership
from controller_runtime.machinery import GVK, Object, Struct, crd, errors, unstructured
from ctrl_testkit import combined
from ctrl_testkit.kinds import Fleet

RAW = unstructured(GVK("example.org", "v1", "Thing"))


@pytest.mark.parametrize(
    "kind", [each for each in default_scheme() if each.resource], ids=lambda kind: str(kind.gvk)
)
def test_every_model_has_facts(kind: type[Object]) -> None:
    properties = kinds.properties_of(kind)
    assert properties.resource == kind.resource
    assert properties.scope_is_known


class Branch(Struct):
    name: str | None = None
    branches: list["Branch"] | None = None


class Tree(Object, group="example.org", version="v1"):
    spec: Branch = Branch()


async def test_a_recursive_model_has_rules_only_above_its_recursion() -> None:
    spec = {"branches": [{"name": "a", "branches": [{"name": "b"}]}]}
    made = await FakeClient().create(
        Tree.from_dict({"metadata": {"namespace": "n", "name": "t"}, "spec": spec})
    )
    assert made.to_dict()["spec"] == spec


def test_a_model_gives_the_same_shape_as_the_definition_made_from_it() -> None:
    (of_crd,) = kinds.properties_of_crd(crd.custom_resource_definition(Fleet))
    template = {"spec": {"containers": [{"name": "c", "env": [{"name": "E", "value": "1"}], "args": ["x"]}]}}
    obj: dict[str, Any] = {
        "metadata": {"finalizers": ["a/b"], "ownerReferences": [{"uid": "u", "name": "o"}]},
        "spec": {
            "suspend": True,
            "crews": [{"name": "a", "targets": ["x"], "template": {"spec": {"template": template}}}],
        },
        "status": {"conditions": [{"type": "Complete", "status": "True"}]},
    }
    known = kinds.properties_of(Fleet)
    assert ownership.fields_of(obj, known.schema) == ownership.fields_of(obj, of_crd.schema)
    assert len(ownership.fields_of(obj, known.schema)) > 10
    assert known.resource == of_crd.resource


def test_unstructured_objects_of_kubernetes_kinds_are_known_without_a_model_being_given() -> None:
    properties = kinds.properties_of(unstructured(GVK("", "v1", "Pod")))
    assert properties == kinds.properties_of(Pod)
    assert not kinds.properties_of(unstructured(Namespace.gvk)).resource.namespaced
    deployment = kinds.properties_of(unstructured(GVK("apps", "v1", "Deployment")))
    paths = ownership.fields_of(
        {"spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}}, deployment.schema
    )
    assert any(isinstance(step, ownership.Item) for path in paths for step in path)


def test_lists_of_a_kind_that_nothing_describes_are_replaced_as_a_whole() -> None:
    schema = kinds.properties_of(RAW).schema
    assert ownership.fields_of({"spec": {"containers": [{"name": "a"}]}}, schema) == {("spec", "containers")}


async def test_a_model_that_is_seen_later_describes_the_kind() -> None:
    raw = unstructured(Fleet.gvk)
    jobs = [{"name": name, "replicas": 1} for name in "ab"]
    body = {"metadata": {"name": "j", "namespace": "n"}, "spec": {"crews": jobs}}
    client = FakeClient(raw.from_dict(body))
    other = {**body, "spec": {"crews": [{"name": "b", "replicas": 1}, {"name": "c", "replicas": 1}]}}
    stored = await client.apply(Fleet.from_dict(other), field_owner="me")
    assert [each.name for each in stored.spec.crews or ()] == ["a", "b", "c"]


@pytest.mark.parametrize(("spec", "problem"), combined.CASES, ids=lambda each: str(each)[:40])
async def test_alternatives_combinations_and_exclusive_bounds_are_checked(
    spec: dict[str, Any], problem: str
) -> None:
    client = FakeClient(crds=[combined.COMBINED_CRD])
    assert await combined.problem_of(client, "n", spec) == problem


async def test_a_part_that_already_matched_no_alternative_stays_as_it_is() -> None:
    stored = combined.COMBINED.from_dict({"metadata": {"name": "c", "namespace": "n"}, "spec": {"one": {}}})
    client = FakeClient(stored, crds=[combined.COMBINED_CRD])
    found = await client.get(combined.COMBINED, ("n", "c"))
    found["spec"] = {"one": {}, "threes": 3}
    await client.update(found)
    found = await client.get(combined.COMBINED, ("n", "c"))
    found["spec"] = {"one": {"a": "", "b": ""}}
    with pytest.raises(errors.InvalidError, match="2 valid alternatives"):
        await client.update(found)
