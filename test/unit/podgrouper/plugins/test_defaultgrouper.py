# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The groups of owners without a grouper of their own, and the default priorities in a ConfigMap."""

from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.cache import CacheDegradedError, CacheSyncTimeoutError
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GroupKind, NamespacedName, Object
from controller_runtime.machinery import names as valid
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.reconcile import Request

from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.podgrouper import PodReconciler, Settings
from pkg.podgrouper.plugins.defaults import DefaultsError, WorkloadDefaults, parse_defaults
from pkg.podgrouper.podgroup import Handler
from testkit.grouping import group_of, make_object, make_pod, pod_grouper
from testkit.recorder import Recorder

DEFAULTS = Settings(default_priorities=NamespacedName("kai", "defaults"))
TYPES = '[{"typeName": "StatefulSet", "priorityName": "gold", "preemptibility": "preemptible"}]'


@pytest.mark.parametrize("kind", [PriorityClass, ConfigMap])
@pytest.mark.parametrize(
    "error",
    [
        ForbiddenError("no", code=403, reason="Forbidden"),
        CacheSyncTimeoutError("no list within 30 s"),
        CacheDegradedError(PriorityClass.gvk, "cannot list"),
    ],
)
async def test_while_classes_or_defaults_cannot_be_read_new_groups_have_the_default_and_others_keep_theirs(
    kind: type[Object], error: Exception
) -> None:
    owners = [make_object("apps/v1", "StatefulSet", name) for name in ("old", "new")]
    pods = [make_pod(f"{owner.name}-{index}", owner) for owner in owners for index in (0, 1)]
    defaults = ConfigMap.from_dict(
        {"metadata": {"namespace": "kai", "name": "defaults"}, "data": {"types": TYPES}}
    )
    server = FakeClient(
        *owners, *pods, defaults, PriorityClass.from_dict({"metadata": {"name": "gold"}, "value": 1})
    )
    refused = False

    async def get(inner: Any, wanted: type[Object], key: Any) -> Any:
        if refused and wanted is kind:
            raise error
        return await inner.get(wanted, key)

    client, notices = interceptor.wrap(server, interceptor.Funcs(get=get)), Recorder()
    grouper = pod_grouper(client, options=DEFAULTS)
    groups = Handler(client, client, node_pool_key="pool", queue_key="queue")
    reconciler = PodReconciler(client, Recorder(), grouper, groups, DEFAULTS, notices=notices)

    async def priority(name: str, pod: int = 0) -> tuple[str | None, str | None]:
        await reconciler.reconcile(Request("team-a", f"{name}-{pod}"))
        spec = (await server.get(PodGroup, ("team-a", f"pg-{name}-uid-{name}"))).spec
        return spec.priority_class_name, spec.preemptibility

    assert await priority("old") == ("gold", "preemptible")
    refused = True
    assert await priority("old", pod=1) == ("gold", "preemptible")
    assert (await priority("new"))[0] == "train"
    assert (await reconciler.reconcile(Request("team-a", "new-0"))).requeue_after is not None
    (event,) = notices.events
    assert event.startswith("Warning DefaultsNotReadable: default priority of pg-new-uid-new: ")
    assert notices.names == ["new-0"]
    refused = False
    assert await priority("new") == ("gold", "preemptible")
    assert len(await server.list(Pod)) == 4


@pytest.mark.parametrize(("length", "whole"), [(213, True), (214, False), (253, False)])
async def test_the_name_of_a_group_is_shortened_with_a_hash_if_it_would_be_too_long(
    length: int, whole: bool
) -> None:
    uid = "00000000-0000-4000-8000-00000000000"
    names = []
    for number in (1, 2):
        owner = make_object("apps/v1", "StatefulSet", "s" * length, uid=f"{uid}{number}")
        names.append((await group_of(make_pod("p", owner), owner)).name)

    assert len(set(names)) == 2
    assert [len(name) for name in names] == [253, 253]
    assert [name.endswith(f"{uid}{number}") for number, name in enumerate(names, 1)] == [whole] * 2


async def test_a_shortened_name_is_valid_if_the_name_of_the_owner_has_a_dot_where_it_is_cut() -> None:
    owner = make_object("apps/v1", "StatefulSet", f"{'s' * 240}.{'t' * 12}")

    name = (await group_of(make_pod("p", owner), owner)).name

    assert len(name) == 253
    assert valid.is_dns1123_subdomain(name) == []


def test_nothing_is_no_default() -> None:
    assert parse_defaults("null") == parse_defaults("[]")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            '[{"typeName": "A", "priorityName": "gold", "priorityName": null}]', id="null as a value"
        ),
        pytest.param('[null, {"typeName": "A", "priorityName": "gold"}]', id="null as an entry"),
        pytest.param('[{"typeName": "A", "priorityName": "gold", "else": [1]}]', id="an unknown field"),
    ],
)
def test_nulls_and_unknown_fields_are_ignored(text: str) -> None:
    assert parse_defaults(text).get(GroupKind("", "A")) == WorkloadDefaults("gold", "")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(None, id="missing"),
        pytest.param("", id="empty"),
        pytest.param("[" * 100_000, id="deep"),
        pytest.param("9" * 5000, id="a number of thousands of digits"),
        pytest.param("{}", id="another type"),
        pytest.param("[[]]", id="an entry of another type"),
        pytest.param('[{"typeName": NaN}]', id="not JSON"),
        pytest.param('[{"typeName": 1}]', id="a name of another type"),
    ],
)
def test_a_text_that_is_not_a_list_of_objects_is_refused(text: str | None) -> None:
    with pytest.raises(DefaultsError):
        parse_defaults(text)
