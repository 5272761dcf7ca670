# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Caches whose keys come from users stay small, whatever and however much users write."""

import functools
import importlib
import pkgutil
import tracemalloc
from collections.abc import Callable, Iterator

import controller_runtime
import pytest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.cache.codec import entry_of
from controller_runtime.client import ReadThrough
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import quantity
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import Request

import pkg

ON_ONE_S_OWN_MACHINE = (
    "controller_runtime.envtest",
    "controller_runtime.testing",
    "controller_runtime.simtest",
)
INPUTS = 10_000
LONG = "1" * 4000
FEW_KEYS = {
    "fake.kinds._groups": "Kubernetes' own kinds",
    "machinery.crd.generate._classes": "classes of models",
    "machinery.crd.generate._definition": "Kubernetes' own structs",
    "machinery.equality._quantity_fields": "classes of models",
    "machinery.gojson._layout": "classes of models",
    "machinery.openapi._recorded": "Kubernetes' own structs",
    "machinery.openapi.kinds": "Kubernetes' own kinds",
    "machinery.openapi.merge_schema": "Kubernetes' own structs",
    "machinery.openapi.published": "Kubernetes' own structs",
    "rest.request._names": "classes of options",
}
"""Functions that remember every result: the code and not a user decides how many keys there are."""


def caches() -> Iterator[tuple[str, int | None]]:
    """Yield each function of the manager that caches its results, and the maximum number of results."""
    for module in (
        *pkgutil.walk_packages(pkg.__path__, "pkg."),
        *pkgutil.walk_packages(controller_runtime.__path__, "controller_runtime."),
    ):
        if module.name.startswith(ON_ONE_S_OWN_MACHINE):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, functools._lru_cache_wrapper) and value.__module__ == module.name:
                yield f"{module.name}.{name}", value.cache_info().maxsize


def test_every_function_that_remembers_has_a_bound_or_few_keys() -> None:
    unbounded = {name.removeprefix("controller_runtime.") for name, size in caches() if size is None}
    assert unbounded == set(FEW_KEYS)


def _quantities(number: int) -> None:
    quantity.canonical(f"{number}{LONG}"[:4000])
    quantity.parse(f"{number}{LONG}"[:4000])
    quantity.cmp(f"{number}m", f"{number}.5")


def _targets(number: int) -> None:
    assert Request("GET", "/p", query=(("fieldSelector", f"metadata.name={number}{LONG * 12}"),)).target


def _labels(number: int) -> None:
    entry_of(b'{"metadata":{"name":"a","labels":{"%d%s":"%d"}}}' % (number, LONG.encode(), number))


@pytest.mark.parametrize(("throw", "inputs"), [(_quantities, 2500), (_targets, 500), (_labels, INPUTS)])
def test_many_long_inputs_leave_little_behind(throw: Callable[[int], None], inputs: int) -> None:
    throw(0)
    tracemalloc.start()
    try:
        for number in range(inputs):
            throw(number)
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < 4 << 20


async def test_a_name_that_no_object_has_is_not_looked_up() -> None:
    live = FakeClient(ConfigMap.from_dict({"metadata": {"name": "a", "namespace": "n"}}))
    client = ReadThrough(FakeClient(), live, [ConfigMap])
    with pytest.raises(NotFoundError):
        await client.get(ConfigMap, ("n", "a" * 254))
    assert live.calls == []
    assert (await client.get(ConfigMap, ("n", "a"))).name == "a"
