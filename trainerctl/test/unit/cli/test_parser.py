# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The command line by itself: help and usage errors do not load the commands' modules."""

import argparse
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainerctl.cli import execution, flags, parser

pytestmark = pytest.mark.real_time

_PROBE = """
import json, sys
before = set(sys.modules)
import trainerctl
try:
    trainerctl.main()
except SystemExit:
    pass
print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
"""
_SPARED = (
    "anyio",
    "asyncio",
    "controller_runtime.client",
    "importlib.metadata",
    "kubernetes_asyncio",
    "pydantic",
    "rich",
    "yaml",
)
_MOST = 90
"""Maximum number of modules that are loaded after the interpreter's start; argparse alone loads half of them."""


def commands(
    of: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Yield every command with its parser."""
    yield words, of
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from commands(below, (*words, name))


COMMANDS = dict(commands(parser.parser()))
LEAVES = [words for words, each in COMMANDS.items() if each.get_default("function")]


def loaded(*arguments: str) -> tuple[list[str], str]:
    """Return the modules that a command line loads, and what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(done.stderr.splitlines()[-1]), done.stdout + done.stderr


@pytest.mark.parametrize("line", [*(" ".join((*words, "--help")) for words in COMMANDS), "help why"])
def test_help_loads_nothing_that_the_command_runs(line: str) -> None:
    modules, printed = loaded(*line.split())
    command = line.removeprefix("help ").removesuffix("--help").strip()
    assert printed.startswith(f"usage: trainerctl {command}".rstrip())
    assert [name for name in modules if name.startswith(_SPARED)] == []
    assert len(modules) <= _MOST


@pytest.mark.parametrize(
    "line", ["", "sideways", "cluster up --nodes -1", "render -n Bad -f x", "crds --bogus"]
)
def test_a_usage_error_loads_nothing_that_the_command_runs(line: str) -> None:
    modules, printed = loaded(*line.split())
    assert "error: " in printed
    assert [name for name in modules if name.startswith(_SPARED)] == []
    assert len(modules) <= _MOST


def test_the_version_loads_what_finds_versions_and_no_more() -> None:
    modules, printed = loaded("--version")
    assert printed.startswith("trainerctl ")
    assert [
        name for name in modules if name.startswith(_SPARED) and not name.startswith("importlib.metadata")
    ] == []


@pytest.mark.parametrize("words", [each for each in LEAVES if each != ("help",)], ids=" ".join)
def test_the_function_of_a_command_exists_and_takes_what_it_is_given(words: tuple[str, ...]) -> None:
    of = COMMANDS[words]
    function = execution.function(of.get_default("function"))
    assert inspect.iscoroutinefunction(function) != bool(of.get_default("passes_flags"))
    assert len(inspect.signature(function).parameters) == (1 if of.get_default("passes_flags") else 3)


def test_every_registered_command_runs_something_unless_it_has_commands_of_its_own() -> None:
    registered: list[tuple[str, ...]] = [("cluster", name) for name, *_ in flags.CLUSTER_COMMANDS]
    registered += [(name,) for name, *_ in flags.COMMANDS if name != "cluster"]
    assert sorted(LEAVES) == sorted(registered)
    assert COMMANDS.keys() == {(), ("cluster",), *registered}


@pytest.mark.parametrize("kind", ["", "trainjob/", "trainjobs/", "trainjob.trainer.kubeflow.org/"])
def test_a_name_may_contain_the_kind_as_get_prints_it(kind: str) -> None:
    assert parser.parse(["why", f"{kind}llama"]).name == "llama"


@pytest.mark.parametrize(
    ("line", "name", "rest"),
    [
        ("--name other -zap-devel --zap-log-level 2 --version", "other", "-zap-devel --zap-log-level 2 --version"),
        ("--kubeconfig k --zap-log-level=2 -- --name --version", "default", "--zap-log-level=2 --name --version"),
    ],
    ids=["unknown flags", "flags after a separator"],
)  # fmt: skip
def test_run_passes_flags_to_the_manager(line: str, name: str, rest: str) -> None:
    parsed = parser.parse(["run", *line.split()])
    assert (parsed.name, parsed.rest) == (name, rest.split())


def test_a_flag_with_several_values_can_be_repeated() -> None:
    parsed = parser.parse(["events", "llama", "--types", "Normal", "--types", "Warning"])
    assert parsed.types == ["Normal", "Warning"]
    lists = [action for action in actions(parser.parser()) if action.nargs == "+" and action.option_strings]
    assert {type(action).__name__ for action in lists} == {"_ExtendAction"}


def actions(of: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in of._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from actions(below)


@pytest.mark.parametrize("name", ["get", "logs", "events"])
def test_commands_that_are_often_used_do_not_load_the_models_of_the_apis(name: str) -> None:
    probe = f"import json, sys, trainerctl.cli.{name}, trainerctl.cli.execution; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    slow = {"controller_runtime.apis.core.v1", "controller_runtime.envtest", "controller_runtime.manager"}
    slow |= {"controller_runtime.serving", "prometheus_client"}
    assert slow.isdisjoint(json.loads(done.stdout))


def test_the_end_of_a_train_job_of_a_local_cluster_is_read_without_the_models_of_the_apis(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "trainer-controller-manager" / "cluster" / "local"
    pod = directory / "removed-pods" / "uid-a" / "pod.json"
    pod.parent.mkdir(parents=True)
    (directory / "cluster.json").write_text('{"server": "https://127.0.0.1:4321"}')
    pod.write_text(json.dumps({
        "metadata": {"name": "a", "namespace": "team-a", "uid": "uid-a", "labels": {"jobset.sigs.k8s.io/jobset-name": "llama"}},
        "status": {"containerStatuses": [{"name": "node", "state": {"terminated": {"exitCode": 3}}}]}}))  # fmt: skip
    job = {"metadata": {"name": "llama", "namespace": "team-a"}, "spec": {"ttlSecondsAfterFinished": 60}, "status": {
        "conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": "2026-03-02T12:00:00Z"}]}}  # fmt: skip
    probe = (
        "import json, sys, datetime; from pkg.why import LiveObject, Snapshot, deletion_of, removed; "
        "from trainerctl.cli.removedpods import folder_of, with_removed; "
        "now = datetime.datetime(2026, 3, 2, 12, tzinfo=datetime.UTC); "
        f"found = with_removed(folder_of('https://127.0.0.1:4321'), Snapshot(LiveObject({job!r}), now)); "
        "print([each.line for each in removed(found)]); print(deletion_of(found)); print(json.dumps(list(sys.modules)))"
    )
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", probe], env=environ, capture_output=True, text=True, check=True
    )
    shown, deleted, modules = done.stdout.splitlines()
    assert deleted == "expires 2026-03-02T12:01:00Z if TTLAfterFinished is enabled"
    assert shown == "['container node of Pod a, ended with exit code 3, the pod is removed']"
    assert {"controller_runtime.apis.core.v1", "controller_runtime.envtest"}.isdisjoint(json.loads(modules))
