# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A measurement names its interpreter, and refuses programs that it cannot build."""

import json
import platform
import re
import shlex
import subprocess
import sysconfig
from pathlib import Path

import pytest
from harness import command, interpreter, measure


def test_the_interpreter_is_named_with_the_flags_of_its_build(monkeypatch: pytest.MonkeyPatch) -> None:
    built = {"CONFIG_ARGS": "'--prefix=/usr' '--enable-optimizations' 'CC=gcc'", "OPT": "-O3 -Wall"}
    monkeypatch.setattr(sysconfig, "get_config_var", built.get)
    line = interpreter.describe()
    assert platform.python_version() in line
    assert line.endswith(": -O3 -Wall --enable-optimizations")


@pytest.mark.real_time
def test_programs_start_without_the_pth_files_of_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "ROOT", tmp_path)
    interpreter.make_environment()
    probe = "import json, site; print(json.dumps(site.getsitepackages()))"
    command = [*shlex.split(interpreter.as_image()), "-c", probe]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    folders = json.loads(answer.stdout)
    assert folders
    assert all(Path(each).is_relative_to(tmp_path) for each in folders)


@pytest.mark.real_time
def test_programs_find_the_packages_of_the_image_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries such as structlog import other packages if they are installed, which takes time and memory."""
    lock = (measure.ROOT / "requirements/image.lock").read_text()
    monkeypatch.setattr(measure, "ROOT", tmp_path)
    interpreter.make_environment()
    probe = "import importlib.metadata as m; print(*(each.name.lower() for each in m.distributions()))"
    command = [*shlex.split(interpreter.as_image()), "-c", probe]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    found, ours = {*answer.stdout.split()}, {"controller-runtime", "trainer-controller-manager"}
    assert found >= {"pydantic", "structlog", *ours}
    assert {each.replace("_", "-") for each in found} - ours <= {*re.findall(r"(?m)^([\w-]+)==", lock)}


def test_an_unknown_release_of_go_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["burst", "--go", "2.1.0,9.9.9"])
    assert ended.value.code == 2
    assert "unknown release 9.9.9; known are 2.1.0, 2.2.1, 2.3.0" in capsys.readouterr().err


def test_the_help_names_the_rounds_and_the_base(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "--base COMMIT" in text
    assert "more than 5 % above" in " ".join(text.split())
