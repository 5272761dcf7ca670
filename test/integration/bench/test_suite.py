# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Each workload on managers runs with a few objects, and our manager sends only the expected requests."""

import dataclasses
import importlib
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from controller_runtime.envtest import Environment
from controller_runtime.rest import Transport
from harness import base, cluster, command, figures, interpreter
from harness.plan import quick

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.nightly]

TORCH = {"patch jobsets": 1.0}
REQUESTS = {
    "burst.torch.5": TORCH,
    "burst.coscheduling.5": {**TORCH, "patch podgroups": 1.0},
    "burst.mpi.5": {**TORCH, "patch secrets": 1.0, "patch configmaps": 1.0},
    "paced.torch": TORCH,
    "status.torch.5": {"patch trainjobs/status": 1.0},
    "cold_start.5.start": TORCH,  # in total: those of the new TrainJob, and none for the existing ones
    "pod_grouping.burst": {"create podgroups": 1.0, "patch pods": 1.0},
    "pod_grouping.churn": {},
}
"""The requests that a manager has to send for each object."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def environment(folder: Path) -> Iterator[Environment]:
    """Yield a control plane for workloads, which can be used from any event loop."""
    interpreter.make_environment()
    environment = Environment(api_server_flags=cluster.api_server_flags(folder))

    async def start() -> None:
        await environment.start()
        async with Transport(environment.config) as transport:
            await cluster.Cluster(environment, transport, folder).install()

    anyio.run(start)
    yield environment
    anyio.run(environment.stop)


def test_a_base_runs_the_code_of_its_commit() -> None:
    shown = "import controller_runtime, pkg.app; print(controller_runtime.__file__, pkg.app.__file__)"
    folders = {interpreter.ROOT / "build/bench" / f"base-{base.resolve('HEAD')[:12]}"}
    for entrant in base.entrants("HEAD"):
        python, _, _ = entrant.command.partition(" -m ")
        done = subprocess.run(
            [*shlex.split(python), "-c", shown], stdout=subprocess.PIPE, text=True, check=True
        )
        library, manager = map(Path, done.stdout.split())
        assert {library.parents[2], manager.parents[2]} == folders


@pytest.mark.parametrize("name", command.WORKLOADS)
def test_a_workload_runs_and_finds_no_needless_request(
    name: str, environment: Environment, folder: Path
) -> None:
    workload = importlib.import_module(f"managers.{name}")
    (ours,) = quick().managers
    # The name is not a valid label, because names of releases are not either.
    plan = dataclasses.replace(quick(), managers=(dataclasses.replace(ours, name="ours-1.0.0"),))

    async def measure() -> list[figures.Figure]:
        async with Transport(environment.config) as transport:
            found: list[figures.Figure] = await workload.run(
                plan, cluster.Cluster(environment, transport, folder)
            )
        return found

    found = {each.name: each.value for each in anyio.run(measure)}
    assert found
    for phase, expected in REQUESTS.items():
        if phase.startswith(f"{name}."):
            start = f"{phase}.requests."
            assert {
                key.removeprefix(start): value for key, value in found.items() if key.startswith(start)
            } == expected


def test_among_many_train_jobs_a_manager_sends_nothing_at_rest_and_one_apply_after_lost_watches() -> None:
    found = {
        each.name.removeprefix("scale.60."): each.value
        for each in anyio.run(importlib.import_module("managers.scale").run, quick())
    }
    assert found["rest.requests"] == 0
    assert [found[f"{phase}.requests.patch jobsets"] for phase in ("behind", "apiserver")] == [1, 1]
