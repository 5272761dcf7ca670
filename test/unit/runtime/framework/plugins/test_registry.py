# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from controller_runtime.fake import FakeClient
from controller_runtime.manager import ManagerError

from pkg.runtime.framework.plugins import registry


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, registry.ENTRY_POINT_GROUP)


OURS = ["PlainML", "Torch", "MPI", "JAX", "XGBoost", "Flux", "CoScheduling", "Volcano", "Workload", "JobSet"]


async def test_every_plugin_goes_by_its_registered_name() -> None:
    client = FakeClient()
    for name, factory in registry.new_registry(found=()).items():
        assert (await factory(client, client)).name == name


def test_plugins_of_others_run_after_ours_by_name() -> None:
    found = [
        entry("Z", "pkg.runtime.framework.plugins.torch:Torch"),
        entry("A", "pkg.runtime.framework.plugins.plainml:PlainML"),
    ]

    names = list(registry.new_registry(found))

    assert names == [*OURS, "A", "Z"]


def module(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> EntryPoint:
    """Return an entry point to the function ``new`` in a module with this source."""
    (folder / "plugin_of_others.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "plugin_of_others", raising=False)
    return entry("A", "plugin_of_others:new")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("def new(:", "SyntaxError: invalid syntax"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("async def new(reader, indexer):\n    raise SystemExit(3)", "SystemExit: 3"),
        ("async def new(reader, indexer):\n    raise OSError('no disk')", "OSError: no disk"),
        ("async def new(reader, indexer):\n    return 1", "not a factory of plugins"),
        ("def new(reader, indexer):\n    return 1", "TypeError: "),
    ],
)
async def test_a_plugin_whose_code_fails_is_named_and_does_not_end_the_process(
    source: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = FakeClient()
    with pytest.raises(ManagerError) as raised:
        await registry.new_registry([module(source, tmp_path, monkeypatch)])["A"](client, client)
    assert str(raised.value).startswith(f"plugin A (plugin_of_others:new): {text}")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("Torch", "pkg.runtime.framework.plugins.torch:Torch", "the name is taken"),
        ("A", "no_such_module:new", "No module named 'no_such_module'"),
        ("A", "pkg.runtime.framework.plugins.torch:gone", "has no attribute 'gone'"),
        ("A", "pkg.runtime.framework.plugins.torch:__name__", "not a factory of plugins"),
    ],
)
def test_a_plugin_that_cannot_be_had_is_named(name: str, value: str, text: str) -> None:
    with pytest.raises(registry.PluginLoadError) as raised:
        registry.new_registry([entry(name, value)])
    assert str(raised.value).startswith(f"plugin {name} ({value}): ")
    assert text in str(raised.value)
