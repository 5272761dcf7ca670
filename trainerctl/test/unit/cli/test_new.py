# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl new``: from flags, in a pipe, and from answers on a terminal."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pkg
import pytest
import yaml

import trainerctl
from trainerctl.cli import new

HOME = Path(pkg.__file__).parent.parent


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = trainerctl.main(["new", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_flags_become_fields_and_the_result_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(
        capsys, "llama", "-n", "team-a", "--nodes", "2", "--gpus", "8", "--memory", "64Gi", "--image", "me/train:1",
        "--env", "A=b=c", "--queue", "q", "--suspend", "--command", "python", "train.py", "--lr", "1",
    )  # fmt: skip

    amounts = {"memory": "64Gi", "nvidia.com/gpu": "8"}
    assert (code, err) == (0, "")
    assert yaml.safe_load(out) == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "llama", "namespace": "team-a", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch-distributed"},
            "trainer": {
                "image": "me/train:1",
                "command": ["python", "train.py", "--lr", "1"],
                "numNodes": 2,
                "resourcesPerNode": {"requests": amounts, "limits": amounts},
                "env": [{"name": "A", "value": "b=c"}],
            },
            "suspend": True,
        },
    }  # fmt: skip


@pytest.mark.parametrize("runtime", new.runtimes())
def test_a_copy_of_each_shipped_runtime_is_valid(runtime: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "llama", "--runtime", runtime, "--with-runtime")

    copied, job = yaml.safe_load_all(out)
    assert (code, err) == (0, "")
    assert (copied["kind"], copied["metadata"]["name"]) == ("TrainingRuntime", "llama-runtime")
    assert job["spec"]["runtimeRef"]["name"] == "llama-runtime"


def test_two_objects_are_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "llama", "--with-runtime", "-o", "json")

    listed = json.loads(out)
    assert (code, listed["kind"]) == (0, "List")
    assert [each["kind"] for each in listed["items"]] == ["TrainingRuntime", "TrainJob"]


def test_files_of_several_flags_are_all_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("one", "two"):
        _, out, _ = run(capsys, name, "--with-runtime")
        (tmp_path / f"{name}.yaml").write_text(out.partition("---")[0])

    wanted = ("llama", "--kind", "TrainingRuntime", "--runtime", "one-runtime")
    assert run(capsys, *wanted, "-f", str(tmp_path / "one.yaml"), "-f", str(tmp_path / "two.yaml"))[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["llama", "--cpu", "x"], 1, "resourcesPerNode.requests.cpu"),
        (["llama", "--runtime", "nope"], 1, "nope"),
        (["llama", "--runtime", "nope", "--with-runtime"], 2, "not a shipped runtime"),
        ([], 2, "the name of the TrainJob is missing"),
    ],
)
def test_an_invalid_train_job_is_refused(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, _, err = run(capsys, *arguments)

    assert found == code
    assert words in err


def test_answers_become_fields_and_an_invalid_one_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    answers: Iterator[str] = iter(
        ["No Name", "llama", "", "", "python train.py --name 'a b'", "none", "3", ""]
    )

    given = new.ask(lambda _question: next(answers))

    assert given == {
        "name": "llama", "runtime": "torch-distributed", "image": None,
        "command": ["python", "train.py", "--name", "a b"], "nodes": 3, "gpus": None,
    }  # fmt: skip
    assert capsys.readouterr().err.count("trainerctl: ") == 2


@pytest.mark.real_time
def test_the_questions_are_asked_on_a_terminal_and_the_result_goes_to_a_pipe() -> None:
    leader, follower = pty.openpty()
    program = [sys.executable, "-P", "-m", "trainerctl", "new"]
    with os.fdopen(leader, "r+b", buffering=0) as terminal:
        process = subprocess.Popen(
            program, stdin=follower, stderr=follower, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": f"{HOME / 'trainerctl'}:{HOME}"}
        )  # fmt: skip
        os.close(follower)
        terminal.write(b"llama\n\n\n\n2\n\n")
        out, _ = process.communicate(timeout=60)
        asked = terminal.read(65536).decode()

    assert process.returncode == 0
    assert yaml.safe_load(out)["spec"]["trainer"] == {"numNodes": 2}
    assert asked.replace("\r", "").count("[") == 5
