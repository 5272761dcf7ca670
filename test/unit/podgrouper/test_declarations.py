# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Groupers that a document declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, NamespacedName

from pkg.podgrouper import DeclarationError, DirectOwners, HubOptions, PodGrouper, new_plugins_hub, read_files
from pkg.podgrouper.declarations import parse
from pkg.podgrouper.plugins import GroupingError
from pkg.podgrouper.podgroup import Metadata

HEAD = "apiVersion: config.trainer.kubeflow.org/v1alpha1\nkind: Grouper\nowner: {group: example.com, version: v1, kind: Flock}\n"
TOTAL = HEAD + "minMember: spec.replicas\n"
PARTS = HEAD + (
    "subGroups:\n"
    "- {name: leader, podLabels: {role: leader}}\n"
    '- {name: worker, podLabels: {role: worker}, minMember: "spec.workers[*].replicas"}\n'
)
KEY = NamespacedName("kai", "groupers")


def config_map(**data: str) -> ConfigMap:
    return ConfigMap.from_dict({"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "data": data})


@pytest.fixture
def flock(make_object: Any) -> Any:
    def make(**spec: Any) -> Any:
        return make_object("example.com/v1", "Flock", "birds", spec=spec, labels={"kai.scheduler/queue": "q"})

    return make


@pytest.fixture
def grouped(make_pod: Any) -> Any:
    async def grouped(*documents: str, owner: Any, **labels: str) -> Metadata:
        options = HubOptions(declared=tuple(parse("birds.yaml", text.encode()) for text in documents))
        pod = make_pod("p", owner, labels=labels)
        cluster = FakeClient(pod, owner)
        grouper = PodGrouper(DirectOwners(cluster, cluster), new_plugins_hub(cluster, options, found=[]))
        found = await grouper.get_pod_owners(pod)
        return await found.metadata(pod)

    return grouped


async def test_a_path_leads_to_the_number_of_pods(grouped: Any, flock: Any) -> None:
    metadata = await grouped(TOTAL, owner=flock(replicas=5))

    assert (metadata.name, metadata.min_available, metadata.queue) == ("pg-birds-uid-birds", 5, "q")


async def test_subgroups_are_required_together_and_hold_the_pods_of_their_labels(
    grouped: Any, flock: Any
) -> None:
    owner = flock(workers=[{"replicas": 2}, {"replicas": 3}, {}])

    metadata = await grouped(PARTS, owner=owner, role="worker")

    assert metadata.min_available == 7
    assert [(each.name, each.min_available, each.pods_references) for each in metadata.sub_groups] == [
        ("leader", 1, []),
        ("worker", 6, ["p"]),
    ]


@pytest.mark.parametrize(("spec", "pods"), [({}, 1), ({"replicas": 0}, 1), ({"replicas": None}, 1)])
async def test_a_missing_number_counts_as_one(spec: Any, pods: int, grouped: Any, flock: Any) -> None:
    assert (await grouped(TOTAL, owner=flock(**spec))).min_available == pods


async def test_a_subgroup_that_needs_no_pods_is_left_out(grouped: Any, flock: Any) -> None:
    metadata = await grouped(PARTS, owner=flock(workers=[]), role="leader")

    assert [each.name for each in metadata.sub_groups] == ["leader"]


async def test_a_declaration_serves_kinds_below_a_wrapper(make_object: Any, make_pod: Any) -> None:
    workflow = make_object("argoproj.io/v1alpha1", "Workflow", "flow")
    owner = make_object("example.com/v1", "Flock", "birds", workflow, spec={"replicas": 4})
    pod = make_pod("p", owner)
    cluster = FakeClient(pod, owner, workflow)
    hub = new_plugins_hub(cluster, HubOptions(declared=(parse("f", TOTAL.encode()),)), found=[])

    found = await PodGrouper(DirectOwners(cluster, cluster), hub).get_pod_owners(pod)

    assert (await found.metadata(pod)).min_available == 4


@pytest.mark.parametrize("replicas", [-1, 2**31, "5", True, 1.5, [], {}])
async def test_a_value_that_is_not_a_number_of_pods_is_named(replicas: Any, grouped: Any, flock: Any) -> None:
    with pytest.raises(GroupingError, match=r"^Flock team-a/birds: spec\.replicas must be a number of pods"):
        await grouped(TOTAL, owner=flock(replicas=replicas))


@pytest.mark.parametrize(
    ("workers", "message"),
    [
        ({"a": 1}, r"spec\.workers\[\*\]\.replicas must lead through a list"),
        ([1], r"spec\.workers\[\*\]\.replicas must lead through maps"),
        ([{}] * 10_001, "has more than 10000 items"),
        ([{"replicas": 2**30}] * 2, "must be a number of pods"),
    ],
)
async def test_a_path_that_leads_elsewhere_is_named(
    workers: Any, message: str, grouped: Any, flock: Any
) -> None:
    with pytest.raises(GroupingError, match=message):
        await grouped(PARTS, owner=flock(workers=workers))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "apiVersion: must be config.trainer.kubeflow.org/v1alpha1"),
        ("a: b", "line 1: a: unknown field; the fields are apiVersion, kind, owner, minMember, subGroups"),
        ("- a", "line 1: a map is expected at the top"),
        ("a: [", "line 2: did not find"),
        ("a: &x [1]\nb: [" + "*x," * 200 + "]", "unknown field"),
        ("a: &x [" + "1," * 100 + "]\nb: [" + "*x," * 200 + "]", "more than 10,000 values"),
        (TOTAL + "---\na: b", "another document begins"),
        (HEAD, "minMember: is required without subGroups"),
        (TOTAL.replace("Flock", "a/b"), "line 3: owner.kind: must be the kind of an API"),
        (TOTAL.replace("v1,", "[],"), "line 3: owner.version: must be the version of an API"),
        (HEAD + "minMember: 0", "line 4: minMember: must be a number of pods, or a path"),
        (HEAD + "minMember: spec..a", "line 4: minMember: must be"),
        (HEAD + f"minMember: {'a.' * 30}a", "line 4: minMember: must be"),
        (PARTS.replace("name: worker", "name: leader"), 'line 6: subGroups[1].name: "leader" is given twice'),
        (PARTS.replace("name: worker", "name: Worker"), "line 6: subGroups[1].name: must be a DNS label"),
        (PARTS.replace("{role: worker}", "{}"), "line 6: subGroups[1].podLabels: must be a map of labels"),
        (HEAD + f"subGroups: [{'a, ' * 101}]", "line 4: subGroups: must be a list of at most 100"),
        (TOTAL + "#" * (64 << 10), "larger than 64 KiB"),
        ("a: " + "[" * 60_000, "nested more than 200 levels deep"),
    ],
)
def test_an_invalid_document_is_named_with_its_field(text: str, message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse("birds.yaml", text.encode())

    assert str(caught.value).startswith("birds.yaml: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_are_read_and_a_kind_is_declared_once(tmp_path: Path) -> None:
    one, two = tmp_path / "1.yaml", tmp_path / "2.yaml"
    one.write_text(TOTAL)
    two.write_text(PARTS)

    assert [each.kind for each in read_files([str(one)])] == [GVK("example.com", "v1", "Flock")]
    with pytest.raises(DeclarationError, match=r"2\.yaml: owner: .*Flock.* is declared twice"):
        read_files([str(one), str(two)])
    with pytest.raises(DeclarationError, match=r"3\.yaml: cannot be read: No such file"):
        read_files([str(tmp_path / "3.yaml")])


async def test_a_config_map_is_read_again_when_it_changes(make_pod: Any, flock: Any) -> None:
    owner = flock(replicas=5)
    pod = make_pod("p", owner)
    cluster = FakeClient(pod, owner)
    hub = new_plugins_hub(cluster, HubOptions(declared_config_map=KEY), found=[])
    grouper = PodGrouper(DirectOwners(cluster, cluster), hub)

    async def minimum() -> int:
        return (await (await grouper.get_pod_owners(pod)).metadata(pod)).min_available

    assert await minimum() == 1
    await cluster.create(config_map(birds=TOTAL))
    assert await minimum() == 5
    assert hub.watches(GVK("example.com", "v1", "Flock"))
    stored = await cluster.get(ConfigMap, KEY)
    stored.data = {"birds": TOTAL.replace("spec.replicas", "0")}
    await cluster.update(stored)
    with pytest.raises(GroupingError, match=r"^ConfigMap kai/groupers, birds: line 4: minMember: must be"):
        await minimum()
