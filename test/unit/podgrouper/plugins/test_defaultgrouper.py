# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.cache import CacheDegradedError, CacheSyncTimeoutError
from controller_runtime.client import interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import NamespacedName, Object
from controller_runtime.machinery import names as valid
from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.reconcile import Request

from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.podgrouper import PodReconciler, Settings
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


@pytest.mark.parametrize(("app", "name"), [("spark-1.a", "spark-1.a"), ("My_App", "my-app-0e86b84b")])
async def test_a_label_that_is_no_valid_name_does_not_make_the_name_of_a_group_invalid(
    app: str, name: str
) -> None:
    pod = make_pod("driver", labels={"spark-app-name": "a", "spark-app-selector": app})

    assert (await group_of(pod)).name == name
