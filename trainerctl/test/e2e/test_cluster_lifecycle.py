# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""trainerctl's cluster as a user runs it: up, status and down; nothing may be left after any kind of end."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pkg
import psutil
import pytest
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import LiveClient
from controller_runtime.envtest import eventually
from controller_runtime.machinery import GVK, Unstructured, unstructured
from controller_runtime.machinery.errors import ForbiddenError, ServerError

from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.names import state_directory
from trainerctl.localcluster.state import State

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.usefixtures("interruptible")]

Trainerctl = Callable[..., subprocess.Popen[str]]
SERVICE = unstructured(GVK("", "v1", "Service"))
WEBHOOKS = unstructured(GVK("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"))
ENDPOINT_SLICE = unstructured(GVK("discovery.k8s.io", "v1", "EndpointSlice"))
PROGRAM = "import sys; from trainerctl import main; sys.exit(main())"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    home = Path(pkg.__file__).parent.parent
    path = f"{home / 'trainerctl'}:{home}"
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": path, "COLUMNS": "200"}


@pytest.fixture
def directory(environ: Mapping[str, str]) -> Path:
    return state_directory("default", environ)


@pytest.fixture
def trainerctl(environ: Mapping[str, str], directory: Path) -> Iterator[Trainerctl]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-P", "-c", PROGRAM, *arguments]
        process = subprocess.Popen(
            argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
    Cluster(directory).kill()


@pytest.fixture
def never_up(environ: dict[str, str], tmp_path: Path) -> None:
    """Let the scheduler never become ready, so that no cluster is up before the test has interrupted its start."""
    scheduler = tmp_path / "assets" / "kube-scheduler"
    scheduler.parent.mkdir()
    scheduler.write_text("#!/bin/sh\nwhile :; do sleep 1; done\n")
    scheduler.chmod(0o755)
    environ["KUBEBUILDER_ASSETS"] = str(scheduler.parent)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=180)
    return process.returncode, out, err


def running_in(directory: Path) -> list[str]:
    """Return the command lines of processes with arguments that name files of ``directory``."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if f"={directory}" in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(line)
    return found


def test_up_leaves_it_running_status_tells_and_down_removes_all(
    trainerctl: Trainerctl, directory: Path
) -> None:
    code, out, err = finish(trainerctl("cluster", "up", "--nodes", "2"))
    assert code == 0, err
    assert out == f"export KUBECONFIG={directory / 'admin.kubeconfig'}\n"
    assert "To remove it, run: trainerctl cluster down\n" in err
    assert len(running_in(directory)) == 8

    code, out, err = finish(trainerctl("cluster", "status"))
    assert code == 0, out + err
    assert len(re.findall(r"^\S+ +healthy +\d+$", out, re.MULTILINE)) == 8
    assert "nodes: 2 of 2 are schedulable" in out

    code, out, err = finish(trainerctl("cluster", "up"))
    assert (code, "is already running" in err) == (0, True)

    code, out, err = finish(trainerctl("cluster", "down"))
    assert code == 0, err
    assert out.startswith("Stopped etcd, kube-apiserver, ")
    assert running_in(directory) == []
    assert not directory.exists()
    code, out, err = finish(trainerctl("cluster", "status"))
    assert (code, out) == (1, "")
    assert "Cluster default does not exist" in err


async def test_run_installs_the_webhooks_of_the_manager_that_it_runs_and_removes_those_of_none(
    trainerctl: Trainerctl, directory: Path
) -> None:
    code, _, err = finish(trainerctl("cluster", "up", "--nodes", "0", "--without-manager"))
    assert code == 0, err
    assert "To start it, run:\ntrainerctl run\n" in err
    job = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"runtimeRef": {"name": "nowhere"}},
    }
    for flag, is_refused in (("--webhooks", True), ("--webhooks=false", False)):
        running = trainerctl("run", flag)
        async with Cluster(directory).client() as client:

            async def settled(refused: bool = is_refused, client: LiveClient = client) -> bool:
                hooks = [each.name for each in await client.list(WEBHOOKS)]
                return ("validator.trainer.kubeflow.org" in hooks) == refused

            await eventually(settled, timeout=60, reason="the webhooks are as the manager serves them")

            async def judged(refused: bool = is_refused, client: LiveClient = client) -> bool:
                try:
                    await client.create(Unstructured.wrap(job), dry_run=True)
                except ServerError:
                    return False  # the manager does not serve yet
                except ForbiddenError:
                    return refused
                return not refused

            await eventually(judged, timeout=60, reason="the webhook of the manager answers")
        running.terminate()
        finish(running)


async def config_maps(cluster: Cluster, *, create: str = "") -> list[str]:
    """Return the names of the ConfigMaps in the default namespace, after creating the one named ``create``."""
    async with cluster.client() as client:
        if create:
            await client.create(ConfigMap(metadata=ObjectMeta(name=create, namespace="default")))
        return [each.name for each in await client.list(ConfigMap, namespace="default")]


def kill(cluster: Cluster, *names: str) -> None:
    for name in names:
        process = psutil.Process(cluster.supervisor.processes[name].identity.pid)
        process.kill()
        with suppress(psutil.NoSuchProcess):
            process.wait(10)


async def test_what_has_ended_is_started_again_by_the_next_up_and_every_object_is_kept(
    trainerctl: Trainerctl, directory: Path
) -> None:
    assert finish(trainerctl("cluster", "up", "--nodes", "1"))[0] == 0
    cluster = Cluster(directory)
    pids = {name: process.identity.pid for name, process in cluster.supervisor.processes.items()}
    kubeconfig = cluster.kubeconfig.read_bytes()
    assert "kube-root-ca.crt" in await config_maps(cluster, create="mine")
    async with cluster.client() as client:
        spec = {"ports": [{"port": 80}], "selector": {"a": "b"}}
        await client.create(
            SERVICE.from_dict({"metadata": {"name": "mine", "namespace": "default"}, "spec": spec})
        )

        async def sliced() -> bool:
            return bool(await client.list(ENDPOINT_SLICE, namespace="default"))

        await eventually(sliced, reason="the service has an EndpointSlice")

    kill(cluster, "kube-scheduler")
    code, out, _ = finish(trainerctl("cluster", "status"))
    assert code == 1
    assert re.search(r"^kube-scheduler +not running +-$", out, re.MULTILINE)
    code, out, _ = finish(trainerctl("cluster", "list"))
    assert re.search(r"^default +unhealthy: kube-scheduler +1 +/", out, re.MULTILINE)
    code, out, err = finish(trainerctl("cluster", "up", "--nodes", "3"))
    assert (code, out) == (0, f"export KUBECONFIG={directory / 'admin.kubeconfig'}\n")
    assert "Restarted components: kube-scheduler." in err
    assert "--nodes had no effect" in err
    now = {name: process.identity.pid for name, process in Cluster(directory).supervisor.processes.items()}
    assert {name for name, pid in pids.items() if now[name] != pid} == {"kube-scheduler"}

    kill(Cluster(directory), *pids)  # as a reboot does
    code, out, _ = finish(trainerctl("cluster", "list"))
    assert re.search(r"^default +stopped +1 +/", out, re.MULTILINE)
    code, _, err = finish(trainerctl("cluster", "up"))
    assert code == 0, err
    assert finish(trainerctl("cluster", "status"))[0] == 0
    assert cluster.kubeconfig.read_bytes() == kubeconfig
    assert "mine" in await config_maps(Cluster(directory))

    assert finish(trainerctl("cluster", "up", "--nodes", "1", "--recreate"))[0] == 0
    assert "mine" not in await config_maps(Cluster(directory))


async def test_stop_keeps_every_object_for_the_next_start(trainerctl: Trainerctl, directory: Path) -> None:
    code, out, err = finish(trainerctl("cluster", "stop"))
    assert (code, out) == (1, "")
    assert "Cluster default does not exist" in err
    assert finish(trainerctl("cluster", "up", "--nodes", "1"))[0] == 0
    await config_maps(Cluster(directory), create="mine")

    code, out, err = finish(trainerctl("cluster", "stop"))
    assert (code, err) == (0, "")
    assert out.startswith("Stopped etcd, kube-apiserver, ")
    assert running_in(directory) == []
    assert finish(trainerctl("cluster", "stop"))[1] == "Cluster default is stopped already.\n"

    code, out, err = finish(trainerctl("cluster", "start"))
    assert (code, out) == (0, f"export KUBECONFIG={directory / 'admin.kubeconfig'}\n"), err
    assert "Started etcd, kube-apiserver, " in err
    assert "mine" in await config_maps(Cluster(directory))
    assert "is running already" in finish(trainerctl("cluster", "start"))[2]

    code, out, err = finish(trainerctl("cluster", "logs", "trainer-controller-manager", "--tail", "1"))
    assert (code, err, len(out.splitlines())) == (0, "", 1)


async def test_a_component_that_cannot_start_again_costs_no_object(
    trainerctl: Trainerctl, directory: Path
) -> None:
    assert finish(trainerctl("cluster", "up", "--nodes", "1"))[0] == 0
    cluster = Cluster(directory)
    await config_maps(cluster, create="mine")
    state = State.read(directory)
    assert state is not None
    (jobset,) = (each for each in state.components if each.name == "jobset-controller")
    kill(cluster, "etcd", "jobset-controller")
    assert jobset.ready is not None
    with socket.create_server(("127.0.0.1", urlsplit(jobset.ready.url).port or 0)):
        code, out, err = finish(trainerctl("cluster", "up", "--timeout", "60"))
    assert (code, out) == (1, "")
    assert err.startswith("trainerctl: jobset-controller exited with code 1; log: ")
    assert "To replace them, run: trainerctl cluster up --recreate --name default" in err
    assert "Traceback" not in err

    server = psutil.Process(Cluster(directory).supervisor.processes["kube-apiserver"].identity.pid)
    server.suspend()  # nothing can start before it is resumed
    process = trainerctl("cluster", "up")  # when it is interrupted, it ends the processes that it started

    def started() -> bool:
        return Cluster(directory).supervisor.processes["etcd"].identity.alive()

    await eventually(started, timeout=60, reason="etcd is started")
    process.send_signal(signal.SIGINT)
    code, _, _ = await anyio.to_thread.run_sync(finish, process)
    server.resume()
    assert code == 128 + signal.SIGINT
    assert State.exists(directory)

    code, _, err = finish(trainerctl("cluster", "up"))
    assert code == 0, err
    assert "mine" in await config_maps(Cluster(directory))


def test_of_two_that_start_a_cluster_at_once_one_waits(trainerctl: Trainerctl, directory: Path) -> None:
    first, second = trainerctl("cluster", "up", "--nodes", "1"), trainerctl("cluster", "up", "--nodes", "1")
    said = [finish(first), finish(second)]
    assert [code for code, _, _ in said] == [0, 0]
    assert {out for _, out, _ in said} == {f"export KUBECONFIG={directory / 'admin.kubeconfig'}\n"}
    (late,) = (err for _, _, err in said if "is already running" in err)
    assert "Another command is using cluster default; waiting for it to end." in late
    assert len(running_in(directory)) == 8


async def starting(directory: Path) -> None:
    """Return when an ``up`` has started the API server, but the cluster is not up yet."""

    def begun() -> bool:
        return (directory / "pids" / "kube-apiserver.pid").exists()

    await eventually(begun, timeout=60, reason="kube-apiserver has been started")
    assert State.read(directory) is None


@pytest.mark.usefixtures("never_up")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_up_leaves_nothing(
    trainerctl: Trainerctl, directory: Path, number: signal.Signals
) -> None:
    process = trainerctl("cluster", "up")
    await starting(directory)
    process.send_signal(number)
    code, out, _ = await anyio.to_thread.run_sync(finish, process)
    assert (code, out) == (128 + number, "")
    assert running_in(directory) == []
    assert not await anyio.Path(directory).exists()


async def test_what_a_killed_up_left_is_ended_by_the_next(
    trainerctl: Trainerctl, directory: Path, environ: dict[str, str], never_up: None
) -> None:
    process = trainerctl("cluster", "up")
    await starting(directory)
    process.kill()
    await anyio.to_thread.run_sync(finish, process)
    del environ["KUBEBUILDER_ASSETS"]
    left = Cluster(directory).supervisor.processes
    assert left["kube-apiserver"].identity.alive()
    code, _, err = await anyio.to_thread.run_sync(finish, trainerctl("cluster", "up", "--nodes", "1"))
    assert code == 0, err
    assert not any(process.identity.alive() for process in left.values())
    assert len(running_in(directory)) == 8


@pytest.mark.usefixtures("never_up")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
async def test_a_killed_demo_leaves_no_process(
    trainerctl: Trainerctl, directory: Path, environ: Mapping[str, str]
) -> None:
    demo = state_directory("demo", environ)
    process = trainerctl("demo")
    await starting(demo)
    process.kill()
    await anyio.to_thread.run_sync(finish, process)
    await eventually(lambda: running_in(demo) == [], timeout=60, reason="the demo's processes have ended")


def test_a_component_that_cannot_start_is_named_with_its_log(
    trainerctl: Trainerctl, environ: dict[str, str], tmp_path: Path, directory: Path
) -> None:
    broken = tmp_path / "assets" / "kube-scheduler"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho out of luck >&2\nexit 9\n")
    broken.chmod(0o755)
    environ["KUBEBUILDER_ASSETS"] = str(broken.parent)
    code, out, err = finish(trainerctl("cluster", "up"))
    assert (code, out) == (1, "")
    log = directory / "logs" / "kube-scheduler.log"
    assert f"trainerctl: kube-scheduler exited with code 9; log: {log}\n    | out of luck\n" in err
    assert "Traceback" not in err
    assert running_in(directory) == []
    assert log.read_text() == "out of luck\n"
    assert [path.name for path in directory.iterdir()] == ["logs"]
    assert finish(trainerctl("cluster", "list"))[1].split()[-2:] == ["not", "up"]
