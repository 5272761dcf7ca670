# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

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

DEFAULTS = Settings(default_priorities=NamespacedName("kai", "defaults"))


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
