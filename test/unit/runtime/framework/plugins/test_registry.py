# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from pkg.ctrl.client import FakeClient
from pkg.runtime.framework.plugins import registry


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, registry.ENTRY_POINT_GROUP)


async def test_every_plugin_goes_by_its_registered_name() -> None:
    client = FakeClient()
    for name, factory in registry.new_registry(found=()).items():
        assert (await factory(client, client)).name == name


def test_plugins_of_others_run_after_ours_by_name() -> None:
    found = [
        entry("Z", "pkg.runtime.framework.plugins.torch:new"),
        entry("A", "pkg.runtime.framework.plugins.plainml:new"),
    ]

    names = list(registry.new_registry(found))

    assert names == ["PlainML", "Torch", "MPI", "CoScheduling", "Volcano", "JobSet", "A", "Z"]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("Torch", "pkg.runtime.framework.plugins.torch:new", "the name is taken"),
        ("A", "no_such_module:new", "No module named 'no_such_module'"),
        ("A", "pkg.runtime.framework.plugins.torch:gone", "has no attribute 'gone'"),
        ("A", "pkg.runtime.framework.plugins.torch:NAME", "not a factory of plugins"),
    ],
)
def test_a_plugin_that_cannot_be_had_is_named(name: str, value: str, text: str) -> None:
    with pytest.raises(registry.PluginLoadError) as raised:
        registry.new_registry([entry(name, value)])
    assert str(raised.value).startswith(f"plugin {name} ({value}): ")
    assert text in str(raised.value)
