# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A test whose program is missing fails in its set-up with one line, and builds nothing."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
CONFTEST = """
from controller_runtime.testing.pytest_envtest import *
from ctrl_testkit.programs import pytest_configure, pytest_runtest_makereport
"""


def test_a_missing_program_is_one_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    folder = pytester.mkdir("below")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text("def test_one(control_plane): pass\ndef test_two(control_plane): pass")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tb=short", folder)
    result.assert_outcomes(errors=2)
    line = (
        "etcd v*, kube-apiserver v* must be built, but ENVTEST_BUILD is never; "
        "`make test-programs` or `make slow-programs` prepares it"
    )
    result.stdout.fnmatch_lines([line])
    result.stdout.no_fnmatch_line("*raise ToolError*")
    assert not (tmp_path / "cache").exists()
