# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl``'s commands for live TrainJobs, on real controllers and a real scheduler."""

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
import trainerctl
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.machinery.errors import NotFoundError
from trainerctl.localcluster.cluster import Cluster

from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.builders import written_train_job

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Awaitable[Done]]


@pytest.fixture
def run(local_cluster: Cluster, cluster_namespace: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command in the test's namespace."""

    async def ran(command: str, *arguments: str) -> Done:
        kubeconfig = str(local_cluster.kubeconfig)
        line = [command, *arguments, "-n", cluster_namespace, "--kubeconfig", kubeconfig]
        capsys.readouterr()
        code = await anyio.to_thread.run_sync(trainerctl.main, line)
        return Done(code, *capsys.readouterr())

    return ran


async def create(client: LiveClient, namespace: str, **spec: Any) -> None:
    await client.create(written_train_job(namespace, "torch-distributed", kind=None, **spec))


async def test_a_train_job_is_suspended_resumed_awaited_and_deleted(
    run: Run, cluster_client: LiveClient, cluster_namespace: str
) -> None:
    await create(cluster_client, cluster_namespace, suspend=True)

    assert "job is suspended" in (await run("wait", "job", "--for", "suspended")).out
    assert "resumed" in (await run("resume", "job")).out
    assert (await run("wait", "job", "--timeout", "120")).code == 0
    assert (await run("why", "job")).out == f"TrainJob {cluster_namespace}/job is complete.\n"
    assert "complete and cannot be suspended" in (await run("suspend", "job")).err
    assert "is complete and is not failed" in (await run("wait", "job", "--for", "failed")).err

    assert "job   Complete" in (await run("get")).out
    tree = (await run("get", "job")).out.splitlines()
    assert [line.split("/")[0].strip() for line in tree[1:]] == ["TrainJob", "JobSet", "Job", "Pod"]
    assert "SuccessfulCreate" in (await run("events", "job")).out
    assert "Pod/job-node-0-0-" in (await run("describe", "job")).out

    assert (await run("delete", "job")).code == 0
    assert (await run("wait", "job", "--for", "deleted", "--timeout", "60")).code == 0
    with pytest.raises(NotFoundError):
        await cluster_client.get(TrainJob, (cluster_namespace, "job"))


async def test_logs_are_simulated_by_rank_and_end_with_the_pods(
    run: Run, cluster_client: LiveClient, cluster_namespace: str, kubectl: Path, local_cluster: Cluster
) -> None:
    await create(cluster_client, cluster_namespace, trainer={"numNodes": 2})
    assert (await run("wait", "job", "--for", "running", "--timeout", "60")).code == 0

    followed = await run("logs", "job", "--all", "--follow")

    assert (followed.code, followed.err) == (0, "")
    lines = followed.out.splitlines()
    for rank in (0, 1):
        mine = [line.partition("] ")[2] for line in lines if line.startswith(f"[node {rank}] ")]
        assert "No container runs in this cluster" in mine[0]
        assert mine[-1] == f"[simulated] rank={rank} nodes=2 done"
        assert sum(f"rank={rank} nodes=2 epoch=" in line for line in mine) == 10

    assert (await run("wait", "job", "--timeout", "120")).code == 0
    last = await run("logs", "job", "--rank", "1", "--tail", "1")
    assert last.out == "[simulated] rank=1 nodes=2 done\n"
    previous = await run("logs", "job", "--previous")
    assert previous.code == 1
    assert "has not restarted, and no earlier pod of its rank is left" in previous.err
    command = ["-n", cluster_namespace, "logs", "-l", "batch.kubernetes.io/job-completion-index=0"]
    argv = [str(kubectl), f"--kubeconfig={local_cluster.kubeconfig}", *command]
    printed = await anyio.run_process([*argv, "--timestamps"])
    assert b"Z [simulated] rank=0 nodes=2 done" in printed.stdout


async def test_a_failed_pods_log_ends_with_its_exit_code_and_why_cites_it(
    run: Run, cluster_client: LiveClient, cluster_namespace: str
) -> None:
    metadata = {"annotations": {"sim.local/exit-code": "3", "sim.local/run-for": "500ms"}}
    override = {"targetJobs": [{"name": "node"}], "metadata": metadata}
    await create(cluster_client, cluster_namespace, podTemplateOverrides=[override])

    async def failed() -> bool:
        return "exit code 3 (annotation" in (await run("logs", "job", "--all")).out

    await eventually(failed, timeout=60, reason="a pod has failed")
    why = await run("why", "job")
    assert "exit code 3" in why.out


async def test_get_watch_follows_a_train_job_to_its_end_in_a_pipe_and_on_a_terminal(
    run: Run, local_cluster: Cluster, cluster_client: LiveClient, cluster_namespace: str
) -> None:
    arguments = [
        "get",
        "job",
        "--watch",
        "-n",
        cluster_namespace,
        "--kubeconfig",
        str(local_cluster.kubeconfig),
    ]
    program = [sys.executable, "-m", "trainerctl", *arguments]
    await create(cluster_client, cluster_namespace, trainer={"numNodes": 1})
    leader, follower = pty.openpty()
    screen = bytearray()
    with os.fdopen(leader, "rb", buffering=0) as terminal:

        def read_all() -> None:
            with contextlib.suppress(OSError):  # Linux reports the end of a terminal as an error
                while part := terminal.read(65536):
                    screen.extend(part)

        drawn = await anyio.open_process(program, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower)
        os.close(follower)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, read_all)
            piped = await anyio.run_process(program, check=False)
            assert await drawn.wait() == 0

    lines = [line.partition("  ")[2] for line in piped.stdout.decode().splitlines()]
    assert (piped.returncode, piped.stderr) == (0, b"")
    assert "TrainJob/job  Complete" in lines
    assert any(line.startswith("Pod/job-node-0-0-") for line in lines)
    assert b"\x1b" not in piped.stdout
    assert b"\x1b" in screen
    assert b"Complete" in screen

    absent = await run("get", "nope", "--watch")
    assert (absent.code, absent.out) == (1, "")
    assert "does not exist" in absent.err
    named = await run("get", "-o", "name")
    assert named.out == "trainjob.trainer.kubeflow.org/job\n"
