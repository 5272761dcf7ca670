# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A measurement names its interpreter, and refuses programs that it cannot build."""

import platform
import sysconfig

import pytest
from harness import command, interpreter


def test_the_interpreter_is_named_with_the_flags_of_its_build(monkeypatch: pytest.MonkeyPatch) -> None:
    built = {"CONFIG_ARGS": "'--prefix=/usr' '--enable-optimizations' 'CC=gcc'", "OPT": "-O3 -Wall"}
    monkeypatch.setattr(sysconfig, "get_config_var", built.get)
    line = interpreter.describe()
    assert platform.python_version() in line
    assert line.endswith(": -O3 -Wall --enable-optimizations")


def test_an_unknown_release_of_go_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["burst", "--go", "2.1.0,9.9.9"])
    assert ended.value.code == 2
    assert "unknown release 9.9.9; known are 2.1.0, 2.2.1, 2.3.0" in capsys.readouterr().err
