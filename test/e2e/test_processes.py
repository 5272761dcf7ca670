# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Pods as local processes: ``trainerctl cluster up --run-processes``."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Pod, Secret
from controller_runtime.client import LiveClient, merge_from
from controller_runtime.envtest import eventually
from trainerctl.localcluster.cluster import Cluster
from trainerctl.localcluster.nodes import NodeShape
from trainerctl.localcluster.options import Options

from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit import programs
from testkit.builders import written_runtime, written_train_job
from testkit.clusters import until
from testkit.local_pods import commands_below

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

TORCH = os.environ.get("TORCH_BIN", "")
"""The folder of programs of a virtual environment with torch."""
SDK = "0.5.0"
SCRIPT = """
import json, sys
from kubeflow.trainer import CustomTrainer, KubernetesBackendConfig, TrainerClient


def descend():
    # Data-parallel linear regression in plain Python: rank 0 averages the gradients of all ranks.
    import json, os, socket, time

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        server = socket.create_server(("", place[1]))
        files = [server.accept()[0].makefile("rw") for _ in range(size - 1)]
    else:
        while True:
            try:
                files = [socket.create_connection(place).makefile("rw")]
                break
            except OSError:
                time.sleep(0.1)

    def mean(value):
        if rank:
            print(value, file=files[0], flush=True)
            return float(files[0].readline())
        total = (value + sum(float(file.readline()) for file in files)) / size
        for file in files:
            print(total, file=file, flush=True)
        return total

    data = [(x, 3.0 * x) for x in range(1 + rank, 10, size)]
    weight = 0.0
    for epoch in range(20):
        loss = mean(sum((weight * x - y) ** 2 for x, y in data) / len(data))
        weight -= 0.02 * mean(sum(2 * (weight * x - y) * x for x, y in data) / len(data))
        print(f"epoch={epoch} loss={loss:.6f}", flush=True)
    print(json.dumps({"rank": rank, "size": size, "weight": weight, "host": socket.gethostname()}))


def reduce():
    import json
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(total)
    print("reduced")  # the SDK's client decodes a log that is one JSON object
    print(json.dumps({"rank": dist.get_rank(), "size": dist.get_world_size(), "sum": total.item()}))
    dist.destroy_process_group()


kubeconfig, namespace, function = sys.argv[1:]
client = TrainerClient(KubernetesBackendConfig(config_file=kubeconfig, namespace=namespace))
name = client.train(
    runtime=client.get_runtime("torch-distributed"),
    trainer=CustomTrainer(func=globals()[function], num_nodes=3, resources_per_node={"cpu": 1}),
)
job = client.wait_for_job_status(name, status={"Complete", "Failed"}, timeout=400, polling_interval=1)
logs = {step.name: list(client.get_job_logs(name, step=step.name)) for step in job.steps}
print(json.dumps({"status": job.status, "logs": logs}))
"""


@pytest.fixture(scope="module")
def local_cluster(run_cluster: Any) -> Iterator[Cluster]:
    """Yield a cluster whose pods run as processes."""
    images = [f"pytorch/pytorch={TORCH}"] if TORCH else []
    options = Options(
        nodes=3,
        shape=NodeShape(gpus=0),
        run_processes=True,
        images=images,
        manager_gates={"TrainJobStatus": True},
    )
    with run_cluster(options) as cluster:
        yield cluster

    def ended() -> bool:
        return not commands_below(cluster.directory)

    # A shim ends its processes when it notices that its kubelet has ended.
    anyio.run(partial(eventually, ended, timeout=60, reason="no process of the cluster runs"))


@pytest.fixture
def train(
    local_cluster: Cluster, cluster_namespace: str, tmp_path: Path
) -> Callable[[str], Awaitable[dict[str, Any]]]:
    """Return a function that trains with the SDK, and returns the status and the lines of each step."""

    async def run(function: str) -> dict[str, Any]:
        kubeconfig = str(local_cluster.kubeconfig)
        said: dict[str, Any] = await programs.run_sdk(
            SDK, SCRIPT, tmp_path, kubeconfig, cluster_namespace, function
        )
        return said

    return run


@pytest.mark.skipif(bool(TORCH), reason="TORCH_BIN gives the image torchrun itself")
async def test_a_function_of_the_sdk_trains_on_three_nodes(train: Any) -> None:
    said = await train("descend")
    assert said["status"] == "Complete", said
    assert sorted(said["logs"]) == ["node-0", "node-1", "node-2"]
    results = [json.loads(lines[-1]) for lines in said["logs"].values()]
    assert sorted((each["rank"], each["size"]) for each in results) == [(0, 3), (1, 3), (2, 3)]
    assert len({each["host"] for each in results}) == 3
    for lines, result in zip(said["logs"].values(), results, strict=True):
        losses = [float(loss) for loss in re.findall(r"loss=([0-9.]+)", "\n".join(lines))]
        assert len(losses) == 20
        assert losses[-1] < losses[0] / 100
        assert result["weight"] == pytest.approx(3.0, abs=0.1)


@pytest.mark.skipif(not TORCH, reason="TORCH_BIN does not name the programs of an environment with torch")
async def test_torchrun_reduces_over_gloo_on_three_nodes(train: Any) -> None:
    said = await train("reduce")
    assert said["status"] == "Complete", said
    results = [json.loads(lines[-1]) for lines in said["logs"].values()]
    assert sorted(each["rank"] for each in results) == [0, 1, 2]
    assert [each["sum"] for each in results] == [6.0] * 3


async def _train_job(client: LiveClient, namespace: str, command: list[str], nodes: int = 3) -> TrainJob:
    """Create a TrainJob whose Job fails at the first failure of a pod."""
    pod = {"containers": [{"name": "node", "image": "local"}], "terminationGracePeriodSeconds": 2}
    policy = {"mlPolicy": {"numNodes": nodes}}
    await client.create(written_runtime(namespace, "local", pod=pod, job={"backoffLimit": 0}, **policy))
    trainer = {"command": command, "numNodes": nodes}
    return await client.create(written_train_job(namespace, "local", name="train", trainer=trainer))


async def test_two_jobs_have_rendezvous_ports_of_their_own(
    cluster_client: LiveClient, cluster_namespace: str
) -> None:
    # Each node 0 listens at its port on all addresses until the other node has connected.
    code = (
        "import os, socket, time\n"
        "place = os.environ['PET_MASTER_ADDR'], int(os.environ['PET_MASTER_PORT'])\n"
        "if os.environ['PET_NODE_RANK'] == '0':\n"
        "    server = socket.create_server(('', place[1]))\n"
        "    peer = server.accept()[0]; peer.sendall(os.environ['JOB'].encode()); time.sleep(3)\n"
        "else:\n"
        "    for _ in range(600):\n"
        "        try:\n"
        "            peer = socket.create_connection(place); break\n"
        "        except OSError:\n"
        "            time.sleep(0.05)\n"
        "    assert peer.recv(9).decode() == os.environ['JOB']; time.sleep(3)\n"
    )
    made = []
    for name in ("one", "two"):
        trainer = {"command": ["python", "-c", code], "numNodes": 2, "env": [{"name": "JOB", "value": name}]}
        job = written_train_job(cluster_namespace, "torch-distributed", name=name, kind=None, trainer=trainer)
        made.append(await cluster_client.create(job))
    for job in made:
        await until(cluster_client, job, "Complete")
    for pod in await cluster_client.list(Pod, namespace=cluster_namespace):
        (status,) = pod.status.container_statuses or []
        assert status.restart_count == 0


async def test_a_failing_rank_fails_the_job_and_ends_the_others(
    cluster_client: LiveClient, cluster_namespace: str, local_cluster: Cluster
) -> None:
    command = ["sh", "-c", 'test "$JOB_COMPLETION_INDEX" != 1 || exit 3; exec sleep 1234']
    job = await _train_job(cluster_client, cluster_namespace, command)
    await until(cluster_client, job, "Failed")
    await _until_ended(local_cluster, "sleep 1234")


async def _until_ended(cluster: Cluster, command: str) -> None:
    async def ended() -> bool:
        return command not in await anyio.to_thread.run_sync(commands_below, cluster.directory)

    await eventually(ended, timeout=60, reason=f"no process runs {command}")


REPORTING = """
import os, time
from kubeflow.trainer.backends.kubernetes import utils

utils._MIN_UPDATE_INTERVAL_SECONDS = 0.0
for step in range(10):
    assert utils.update_trainjob_status(10 * step, 10 - step, {"loss": 1 / (step + 1), "lr": 0.001})
    time.sleep(1)
    while not os.path.exists("go"):
        time.sleep(0.1)
assert utils.update_trainjob_status(100, 0, {"loss": 0.1})
"""


async def test_the_progress_of_the_sdk_is_followed_and_drawn_while_a_command_runs_in_the_pod(
    cluster_client: LiveClient, cluster_namespace: str, local_cluster: Cluster, tmp_path: Path
) -> None:
    command = [str(programs.sdk_python(SDK)), "-c", REPORTING]
    job = await _train_job(cluster_client, cluster_namespace, command, nodes=1)
    flags = ["-n", cluster_namespace, f"--kubeconfig={local_cluster.kubeconfig}"]
    said: dict[str, subprocess.CompletedProcess[bytes]] = {}

    async def tool(verb: str, *words: str) -> None:
        argv = [sys.executable, "-m", "trainerctl", verb, "train", *flags, *words]
        said[verb] = await anyio.run_process(argv, check=False)

    async def reported() -> bool:
        return (await cluster_client.get(TrainJob, job.key)).status.trainer_status is not None

    await eventually(reported, timeout=120, reason="the pod has reported")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tool, "progress", "-o", "json", "--plot", str(tmp_path / "train.svg"))
        tasks.start_soon(tool, "wait", "--timeout", "200")
        await tool("get")
        drawn = anyio.Path(tmp_path / "train.svg").exists
        await eventually(drawn, timeout=60, reason="the first report is followed")
        await tool("exec", "--", "sh", "-c", 'touch go; echo "$JOB_COMPLETION_INDEX"; exit 5')
    assert b"Running" in said["get"].stdout
    assert b"lr=0.001, " in said["get"].stdout
    assert (said["exec"].stdout, said["exec"].returncode) == (b"0\n", 5)
    assert said["wait"].stdout == f"TrainJob {cluster_namespace}/train is complete\n".encode()
    reports = [json.loads(line) for line in said["progress"].stdout.splitlines()]
    assert (len(reports) > 3, said["progress"].returncode) == (True, 0), said["progress"]
    assert reports[-1]["progressPercentage"] == 100
    assert reports[-1]["metrics"] == [{"name": "loss", "value": "0.1"}]
    picture = (tmp_path / "train.svg").read_text()
    assert picture.count("<polyline") == 3
    assert "Complete, 100%" in picture


async def test_suspend_ends_the_processes_and_resume_starts_others(
    cluster_client: LiveClient, cluster_namespace: str, local_cluster: Cluster
) -> None:
    # The second process ignores SIGTERM and has left the session of the first.
    command = ["sh", "-c", "trap '' TERM; setsid sleep 2345 & sleep 2345"]
    job = await _train_job(cluster_client, cluster_namespace, command, nodes=2)

    async def run() -> bool:
        return commands_below(local_cluster.directory).count("sleep 2345") == 4

    async def suspend(value: bool) -> None:
        stored = await cluster_client.get(TrainJob, job.key)
        changed = stored.deep_copy()
        changed.spec.suspend = value
        await cluster_client.patch(changed, merge_from(stored))

    await eventually(run, timeout=60, reason="the processes of both nodes run")
    await suspend(True)
    await _until_ended(local_cluster, "sleep 2345")
    await suspend(False)
    await eventually(run, timeout=60, reason="the processes of both nodes run again")
    await cluster_client.delete(job)
    await _until_ended(local_cluster, "sleep 2345")


async def _pod(client: LiveClient, namespace: str, name: str, spec: dict[str, Any]) -> Pod:
    return await client.create(
        Pod.from_dict({"metadata": {"name": name, "namespace": namespace}, "spec": spec})
    )


def _container(*command: str, **fields: Any) -> dict[str, Any]:
    return {"name": "main", "image": "local", "command": list(command), **fields}


async def _until_phase(client: LiveClient, pod: Pod, *phases: str) -> Pod:
    async def reached() -> bool:
        return (await client.get(Pod, pod.key)).status.phase in phases

    await eventually(reached, timeout=60, reason=f"the pod is {phases}")
    return await client.get(Pod, pod.key)


def _exit(pod: Pod) -> tuple[int | None, str | None]:
    (status,) = pod.status.container_statuses or []
    assert status.state is not None
    assert status.state.terminated is not None, status
    return status.state.terminated.exit_code, status.state.terminated.reason


async def test_a_pod_gets_its_environment_volumes_and_names(
    cluster_client: LiveClient, cluster_namespace: str, local_cluster: Cluster, kubectl: Path
) -> None:
    metadata = {"name": "values", "namespace": cluster_namespace}
    await cluster_client.create(
        ConfigMap.from_dict({"metadata": metadata, "data": {"KEY": "one", "file": "two"}})
    )
    await cluster_client.create(Secret.from_dict({"metadata": metadata, "stringData": {"PASS": "three"}}))
    script = (
        'echo "$KEY $PASS $(MIX)"; cat /deep/er/file /deep/SECRET /deep/init; echo; hostname; pwd; '
        "getent hosts web.sub | cut -d' ' -f1; echo $IP; test -s /var/run/secrets/kubernetes.io/serviceaccount/token;"
        " echo bye > /dev/termination-log; printf end"
    )
    env = [
        {"name": "PASS", "valueFrom": {"secretKeyRef": {"name": "values", "key": "PASS"}}},
        {"name": "MIX", "value": "<$(PASS)>"},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    shared = {"name": "shared", "mountPath": "/deep"}
    mounts = [shared, {"name": "values", "mountPath": "/deep/er"}]
    mounts.append({"name": "secret", "mountPath": "/deep/SECRET", "subPath": "PASS"})
    main = _container("sh", "-ec", script, env=env, volumeMounts=mounts, workingDir="/no/such/folder")
    main["envFrom"] = [{"configMapRef": {"name": "values"}}]
    init = {**_container("sh", "-c", "echo first > /deep/init", volumeMounts=[shared]), "name": "init"}
    volumes = [
        {"name": "shared", "emptyDir": {}},
        {"name": "values", "configMap": {"name": "values"}},
        {"name": "secret", "secret": {"secretName": "values"}},
    ]
    spec = {"containers": [main], "initContainers": [init], "volumes": volumes, "restartPolicy": "Never"}
    pod = await _pod(
        cluster_client, cluster_namespace, "web", {**spec, "hostname": "web", "subdomain": "sub"}
    )
    pod = await _until_phase(cluster_client, pod, "Succeeded", "Failed")
    argv = [str(kubectl), f"--kubeconfig={local_cluster.kubeconfig}", "logs", "web", "-n", cluster_namespace]
    done = await anyio.run_process([*argv, "-c", "main"])
    address = pod.status.pod_ip
    want = f"one three <three>\ntwothreefirst\n\nweb\n/no/such/folder\n{address}\n{address}\nend"
    assert done.stdout.decode() == want
    assert pod.status.phase == "Succeeded"
    assert _exit(pod) == (0, "Completed")
    assert "bye" in json.dumps(pod.to_dict()["status"])
    entries = {path.name async for path in anyio.Path("/").iterdir()}
    assert not {"no", "deep"} & entries  # the machine's own file system did not change
