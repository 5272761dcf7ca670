# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The first use of the local cluster names the programs that it builds, and previews its TrainJob."""

import io
from pathlib import Path

import pytest
from controller_runtime.envtest import ToolError

from trainerctl.cli import cluster, demo, parser
from trainerctl.cli.demo import train_job
from trainerctl.cli.terminal import Console
from trainerctl.localcluster.options import Options


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def text(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return tmp_path / "controller-runtime" / "bin"


def put(cache: Path, *names: str) -> None:
    for tool in Options().tools:
        if tool.name in names:
            directory = cache / tool.group.key
            directory.mkdir(parents=True, exist_ok=True)
            (directory / tool.name).touch()
            (directory / f"{tool.name}.json").write_text("[]")


def test_all_programs_are_named_with_the_time_that_they_take(cache: Path, console: Console) -> None:
    assert cluster.announce(Options().tools, console)
    first, second = text(console).splitlines()
    assert first.startswith("Programs to build from source, once: etcd, kube-apiserver, ")
    assert first.endswith("jobset-controller, kwok.")
    assert "five minutes" in second


def test_only_missing_programs_are_named(cache: Path, console: Console) -> None:
    put(cache, *(tool.name for tool in Options().tools if tool.name != "kwok"))
    assert cluster.announce(Options().tools, console)
    assert text(console) == "Programs to build from source, once: kwok.\n"


def test_nothing_is_printed_when_nothing_is_built(cache: Path, console: Console) -> None:
    put(cache, *(tool.name for tool in Options().tools))
    assert not cluster.announce(Options().tools, console)
    assert text(console) == ""


async def test_the_preview_explains_and_renders_the_demos_train_job(console: Console) -> None:
    await demo.preview(train_job(3), console)
    shown = text(console)
    assert "← spec.trainer.numNodes" in shown
    assert "Result  JobSet hello-torch (pods: node 3)" in shown
    assert "Applies JobSet hello-torch" in shown


async def test_the_demo_shows_the_preview_while_its_programs_are_missing(
    cache: Path, console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_cluster: object) -> None:
        raise ToolError("Go is missing")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("trainerctl.localcluster.cluster.Cluster.up", fail)
    with pytest.raises(ToolError):
        await demo.demo_command(parser.parse(["demo"]), console, Console(file=io.StringIO()))
    assert "Applies JobSet hello-torch" in text(console)
