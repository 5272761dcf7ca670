# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from controller_runtime.client import FieldIndexer, Reader
from controller_runtime.fake import FakeClient

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime import Runtime, core
from pkg.runtime.core import RuntimeFactory, RuntimeRegistrar


def noting(order: list[str], name: str) -> RuntimeFactory:
    async def make(_client: Reader, _indexer: FieldIndexer, built: Mapping[str, Runtime]) -> Runtime:
        order.append(f"{name} after {','.join(built) or 'none'}")
        return cast("Runtime", name)

    return make


async def test_a_runtime_is_made_after_those_it_depends_on() -> None:
    order: list[str] = []
    client = FakeClient()
    registry = {
        "a": RuntimeRegistrar(noting(order, "a"), dependencies=("b", "c")),
        "b": RuntimeRegistrar(noting(order, "b"), dependencies=("c",)),
        "c": RuntimeRegistrar(noting(order, "c")),
    }

    made = await core.new(client, client, registry)

    assert order == ["c after none", "b after c", "a after c,b"]
    assert list(made) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("dependencies", "text"),
    [
        ({"a": ("b",)}, "runtime a depends on b, which is not registered"),
        ({"a": ("b",), "b": ("a",)}, "runtimes depend on each other: "),
    ],
)
async def test_dependencies_that_do_not_work_out_are_named(
    dependencies: dict[str, tuple[str, ...]], text: str
) -> None:
    client = FakeClient()
    registry = {key: RuntimeRegistrar(noting([], key), needs) for key, needs in dependencies.items()}

    with pytest.raises(core.RuntimeRegistryError) as raised:
        await core.new(client, client, registry)
    assert str(raised.value).startswith(text)


async def test_both_kinds_are_served_and_cannot_write() -> None:
    client = FakeClient()

    made = await core.new(client, client)

    assert list(made) == [
        "TrainingRuntime.trainer.kubeflow.org",
        "ClusterTrainingRuntime.trainer.kubeflow.org",
    ]
    reader: Any = cast("core.TrainingRuntime", made[core.TRAINING_RUNTIME_GROUP_KIND]).client
    assert not hasattr(reader, "apply")
    assert not hasattr(reader, "create")
    assert not hasattr(reader, "status")
    assert await reader.list(TrainJob) == []
