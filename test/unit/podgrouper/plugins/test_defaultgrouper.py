# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.cache import CacheDegradedError, CacheError, CacheSyncTimeoutError
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import NamespacedName, Object

from pkg.podgrouper import Settings
from pkg.podgrouper.plugins.defaultgrouper import DefaultGrouper
from pkg.podgrouper.podgroup import Metadata

DEFAULTS = Settings(default_priorities=NamespacedName("kai", "defaults"))
GroupSet = Callable[..., Awaitable[Metadata]]


@pytest.fixture
def group_set(make_object: Any, make_pod: Any, group: Any) -> GroupSet:
    """Return a function that returns the group of a StatefulSet's pod; ``types`` are the defaults in the ConfigMap."""

    async def group_set(
        *others: Object, pod: dict[str, Any] | None = None, types: str | None = None, **metadata: Any
    ) -> Metadata:
        owner = make_object("apps/v1", "StatefulSet", "s", **metadata)
        config_map = make_object("v1", "ConfigMap", "defaults", namespace="kai")
        if types is not None:
            config_map["data"] = {"types": types}
        found: Metadata = await group(
            make_pod("p", owner, **(pod or {})),
            owner,
            config_map,
            *(
                make_object("scheduling.k8s.io/v1", "PriorityClass", n, namespace="")
                for n in ("gold", "silver")
            ),
            *others,
            options=DEFAULTS,
        )
        return found

    return group_set


@pytest.mark.parametrize(
    ("api_version", "kind", "priority_class"),
    [
        ("apps/v1", "Deployment", "inference"),
        ("egx.nvidia.io/v1", "SPOTRequest", "inference"),
        ("kubeflow.org/v1beta1", "Notebook", "build"),
        ("apps/v1", "StatefulSet", "train"),
    ],
)
async def test_priority_class_of_the_kind_unless_one_is_named(
    api_version: str, kind: str, priority_class: str, make_object: Any, make_pod: Any, group: Any
) -> None:
    owner = make_object(api_version, kind, "o")
    named = make_object(api_version, kind, "n", labels={"priorityClassName": "gold"})
    gold = make_object("scheduling.k8s.io/v1", "PriorityClass", "gold", namespace="")

    assert (await group(make_pod("p", owner), owner, gold)).priority_class_name == priority_class
    assert (await group(make_pod("p", named), named, gold)).priority_class_name == "gold"


@pytest.mark.parametrize(
    ("owner", "pod", "queue"),
    [
        ({"kai.scheduler/queue": "o"}, {"kai.scheduler/queue": "p"}, "o"),
        ({"project": "o"}, {"kai.scheduler/queue": "p"}, "p"),
        ({"project": "o"}, {"project": "p", "kai.scheduler/node-pool": "a100"}, "o-a100"),
        ({}, {"project": "p"}, "p"),
        ({"project": ""}, {"project": "p"}, "default-queue"),
        ({"kai.scheduler/queue": ""}, {}, ""),
        ({}, {"kai.scheduler/node-pool": "a100"}, "default-queue"),
    ],
)
async def test_queue(owner: dict[str, str], pod: dict[str, str], queue: str, group_set: GroupSet) -> None:
    assert (await group_set(labels=owner, pod={"labels": pod})).queue == queue


@pytest.mark.parametrize(
    ("owner", "pod", "spec", "priority_class"),
    [
        ("gold", "silver", "silver", "gold"),
        (None, "gold", "silver", "gold"),
        (None, None, "gold", "gold"),
        ("ghost", "gold", "gold", "train"),
    ],
)
async def test_the_first_that_names_a_priority_class_decides_and_it_must_exist(
    owner: str | None, pod: str | None, spec: str, priority_class: str, group_set: GroupSet
) -> None:
    metadata = await group_set(
        labels={"priorityClassName": owner} if owner else {},
        pod={"labels": {"priorityClassName": pod} if pod else {}, "spec": {"priorityClassName": spec}},
    )

    assert metadata.priority_class_name == priority_class


@pytest.mark.parametrize(
    ("types", "priority_class", "preemptibility"),
    [
        ('[{"typeName": "StatefulSet", "group": "apps", "priorityName": "gold"}]', "gold", ""),
        (
            '[{"typeName": "StatefulSet", "priorityName": "gold", "preemptibility": "Preemptible"}]',
            "gold",
            "preemptible",
        ),
        ('[{"TYPENAME": "StatefulSet", "priorityname": "gold", "else": [1]}]', "gold", ""),
        ('[{"typeName": "StatefulSet", "priorityName": "gold", "priorityName": null}]', "gold", ""),
        (
            (
                '[{"typeName": "StatefulSet", "priorityName": "gold"},'
                ' {"typeName": "StatefulSet", "group": "apps", "preemptibility": "non-preemptible"}]'
            ),
            "train",
            "non-preemptible",
        ),
        ('[{"typeName": "StatefulSet", "priorityName": "ghost"}]', "train", ""),
        ('[{"typeName": "Deployment", "priorityName": "gold"}]', "train", ""),
        ('[null, {"typeName": "StatefulSet", "priorityName": "gold"}]', "gold", ""),
        ("null", "train", ""),
        pytest.param('{"typeName": "StatefulSet"}', "train", "", id="no list"),
        pytest.param('["StatefulSet"]', "train", "", id="an entry that is no object"),
        pytest.param(
            '[{"typeName": "StatefulSet", "priorityName": 1}]', "train", "", id="a name that is no text"
        ),
        pytest.param('[{"typeName": NaN}]', "train", "", id="no JSON"),
        pytest.param("[" * 100_000, "train", "", id="too deep"),
        pytest.param(None, "train", "", id="no text"),
    ],
)
async def test_the_config_map_of_defaults(
    types: str | None, priority_class: str, preemptibility: str, group_set: GroupSet
) -> None:
    metadata = await group_set(types=types)

    assert (metadata.priority_class_name, metadata.preemptibility) == (priority_class, preemptibility)


@pytest.mark.parametrize("kind", [PriorityClass, ConfigMap])
@pytest.mark.parametrize(
    "error",
    [CacheSyncTimeoutError("no list within 30 s"), CacheDegradedError(PriorityClass.gvk, "cannot list")],
)
async def test_a_group_gets_no_other_priority_while_classes_or_defaults_cannot_be_read(
    kind: type[Object], error: CacheError, make_object: Any, make_pod: Any
) -> None:
    async def get(inner: Any, wanted: type[Object], key: Any) -> Any:
        if wanted is kind:
            raise error
        return await inner.get(wanted, key)

    default = DefaultGrouper(interceptor.wrap(FakeClient(), interceptor.Funcs(get=get)), DEFAULTS)
    owner = make_object("apps/v1", "StatefulSet", "s")
    pod = make_pod("p", owner, spec={"priorityClassName": "gold"})

    with pytest.raises(type(error)):
        await default.get_pod_group_metadata(owner, pod)
    if kind is ConfigMap:
        with pytest.raises(type(error)):
            await default.defaults_for(owner)


KEY = "kai.scheduler/preemptibility"


@pytest.mark.parametrize(
    ("owner", "pod", "preemptibility"),
    [
        ({KEY: "preemptible"}, {KEY: "non-preemptible"}, "preemptible"),
        ({KEY: "Preemptible"}, {KEY: "non-preemptible"}, "non-preemptible"),
        ({KEY: "maybe"}, {}, "preemptible"),
    ],
)
async def test_preemptibility_is_the_first_valid_label_then_the_default(
    owner: dict[str, str], pod: dict[str, str], preemptibility: str, group_set: GroupSet
) -> None:
    types = '[{"typeName": "StatefulSet", "preemptibility": "preemptible"}]'

    metadata = await group_set(labels=owner, pod={"labels": pod}, types=types)

    assert metadata.preemptibility == preemptibility


async def test_the_group_has_the_owners_labels_and_annotations_and_the_pods_user(group_set: GroupSet) -> None:
    metadata = await group_set(
        labels={"a": "b"},
        annotations={"c": "d", "user": "owner"},
        pod={"labels": {"user": "pod", "e": "f"}, "annotations": {"user": "pod"}},
    )

    assert metadata.labels == {"a": "b", "user": "pod"}
    assert metadata.annotations == {
        "c": "d",
        "user": "owner",
        "kai.scheduler/top-owner-metadata": "name: s\nuid: uid-s\ngroup: apps\nversion: v1\nkind: StatefulSet\n",
    }
