# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The bytecode of the standard library under the paths where imports look for it."""

import importlib.util
import marshal
import sched
import types
from pathlib import Path

import pydantic
import pytest

from controller_runtime import precompile


def compiled(folder: Path, module: types.ModuleType) -> Path:
    path = Path(importlib.util.cache_from_source(str(module.__file__)))
    return folder / path.relative_to(path.anchor)


@pytest.mark.real_time
def test_loaded_modules_of_the_standard_library_are_compiled(tmp_path: Path) -> None:
    assert precompile.main([str(tmp_path), "sched", "pydantic"]) == 0
    data = compiled(tmp_path, sched).read_bytes()
    assert data[:4] == importlib.util.MAGIC_NUMBER
    assert int.from_bytes(data[4:8], "little") == 1  # never compared with the source
    assert marshal.loads(data[16:]).co_filename == sched.__file__
    assert not compiled(tmp_path, pydantic).exists()


def test_a_missing_module_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert precompile.main([str(tmp_path), "no_such_module"]) == 1
    assert "no_such_module" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["folder"], ["folder", "--help"]])
def test_other_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert precompile.main(arguments) == 2
    assert "usage" in capsys.readouterr().err
