# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m controller_runtime``: the output, the files and the errors of the generators."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controller_runtime.machinery import yaml
from controller_runtime.tools.command import main

MARKER = "# +kubebuilder:rbac:groups=example.com,resources=websites,verbs=get\n"


def test_a_module_with_kinds_becomes_one_file_for_each_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["crd", "ctrl_testkit.kinds", "--output", str(tmp_path)]
    assert main(command) == 0
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names
    for name in names:
        crd: Any = yaml.load((tmp_path / name).read_text())
        assert f"{crd['spec']['group']}_{crd['spec']['names']['plural']}.yaml" == name
    assert capsys.readouterr().out.count("wrote ") == len(names)
    assert main([*command, "--check"]) == 0
    assert main(command) == 0
    assert capsys.readouterr().out == ""


def test_the_versions_of_a_kind_become_one_file(tmp_path: Path) -> None:
    assert main(["crd", "ctrl_testkit.workers", "--output", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["example.com_workers.yaml"]


def test_one_kind_of_a_module_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["crd", "ctrl_testkit.kinds"]) == 0
    first: Any = next(yaml.load_all(capsys.readouterr().out))
    assert main(["crd", f"ctrl_testkit.kinds:{first[1]['spec']['names']['kind']}"]) == 0
    assert list(yaml.load_all(capsys.readouterr().out)) == [first]


def test_a_check_names_the_files_that_are_not_up_to_date_and_writes_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code.py").write_text(MARKER)
    role = tmp_path / "role.yaml"
    command = ["rbac", str(tmp_path), "--name", "operator", "--output", str(role)]
    assert main([*command, "--check"]) == 1
    assert capsys.readouterr().err == f"{role} is not up to date\n"
    assert not role.exists()
    assert main(command) == 0
    assert main([*command, "--check"]) == 0
    role.write_text("old")
    assert main([*command, "--check"]) == 1
    assert role.read_text() == "old"


def test_webhooks_are_written_for_a_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "code.py").write_text(
        "# +kubebuilder:webhook:path=/a,mutating=false,failurePolicy=fail,groups=a,resources=b,verbs=create,versions=v1,name=c.a\n"
    )
    assert main(["webhook", str(tmp_path), "--name", "operator", "--service", "system/webhook"]) == 0
    made: Any = yaml.load(capsys.readouterr().out)
    assert made["webhooks"][0]["clientConfig"]["service"]["namespace"] == "system"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        pytest.param(["crd", "no_such_module"], "cannot import no_such_module", id="no module"),
        pytest.param(["crd", "ctrl_testkit.kinds:Missing"], "defines no kind Missing", id="no kind"),
        pytest.param(["crd", "json"], "json defines no kind", id="no kinds"),
        pytest.param(
            ["crd", "ctrl_testkit.kinds", "--check"], "--check needs --output", id="check of nothing"
        ),
        pytest.param(["crd", "api/v1.py"], "api/v1.py is a file: name its module", id="file"),
        pytest.param(["rbac", "/missing", "--name", "a"], "/missing: no such file or folder\n", id="no path"),
        pytest.param(
            ["webhook", ".", "--name", "a", "--service", "b"], "must be NAMESPACE/NAME", id="service"
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_it(
    command: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command) == 1
    text = capsys.readouterr().err
    assert problem in text
    assert text.count("\n") == 1


def test_a_module_in_place_of_a_file_is_named_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator/webhooks.py").write_text("")
    monkeypatch.chdir(tmp_path)
    for given, hint in {
        "operator.webhooks": "; did you mean operator/webhooks.py?",
        "operator.other": "",
        "...x": "",
    }.items():
        assert main(["rbac", given, "--name", "a"]) == 1
        assert capsys.readouterr().err.endswith(f"{given}: no such file or folder{hint}\n")


def test_a_command_line_without_a_command_prints_the_usage() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "controller_runtime"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "usage: python -m controller_runtime" in done.stderr


@pytest.mark.parametrize("command", ["rbac", "webhook"])
def test_code_without_comments_is_noted(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "empty.py"
    file.write_text("# +kubebuilder:object:root=true\n")
    service = ["--service", "n/s"] if command == "webhook" else []
    assert main([command, str(file), "--name", "a", *service]) == 0
    assert capsys.readouterr().err.endswith(f"{command}: no +kubebuilder:{command} comments in {file}\n")
