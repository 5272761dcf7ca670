# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The Kubeflow SDK, as released, finds our runtimes and trains with our manager."""

import fcntl
import json
import subprocess
import sys
from pathlib import Path

import anyio.to_thread
import pytest

from pkg.cli import resources
from pkg.cli.cluster import Cluster
from pkg.ctrl.envtest.binaries import cache_directory

pytestmark = pytest.mark.e2e

# The SDK asks for any release of its models from 2.0 on; with those of 2.2 and later it cannot read its own runtimes.
VERSION, MODELS = "0.2.0", "2.1.0"
# Run by the SDK's own interpreter: nothing of ours is imported.
SCRIPT = """
import json, sys
from kubeflow.trainer import CustomTrainer, KubernetesBackendConfig, TrainerClient


def train():
    print("training")


kubeconfig, namespace = sys.argv[1:]
client = TrainerClient(KubernetesBackendConfig(config_file=kubeconfig, namespace=namespace))
runtimes = {r.name: r for r in client.list_runtimes()}
runtime = client.get_runtime("torch-distributed")
name = client.train(
    runtime=runtime,
    trainer=CustomTrainer(func=train, num_nodes=2, resources_per_node={"cpu": 1}),
)
seen = [client.get_job(name).status]
job = client.wait_for_job_status(name, status={"Running", "Complete"}, timeout=60, polling_interval=1)
seen.append(job.status)
job = client.wait_for_job_status(name, timeout=60, polling_interval=1)
print(json.dumps({
    "runtimes": {n: [r.trainer.framework, r.trainer.num_nodes] for n, r in runtimes.items()},
    "seen": seen,
    "status": job.status,
    "num_nodes": job.num_nodes,
    "runtime": job.runtime.name,
    "steps": sorted(step.name for step in job.steps),
    "listed": [j.name for j in client.list_jobs()] == [name],
}))
client.delete_job(name)
"""


@pytest.fixture(scope="session")
def sdk_python() -> Path:
    """An interpreter with the SDK, in a virtual environment of its own that later runs use again."""
    home = cache_directory()
    venv = home / f"sdk-{VERSION}-{MODELS}-py{sys.version_info.major}.{sys.version_info.minor}"
    python, done = venv / "bin" / "python", venv / "installed"
    home.mkdir(parents=True, exist_ok=True)
    with (home / f"{venv.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], check=True)
            command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*command, f"kubeflow=={VERSION}", f"kubeflow-trainer-api=={MODELS}"], check=True)
            done.touch()
    return python


async def test_the_sdk_lists_runtimes_and_trains(
    local_cluster: Cluster, cluster_namespace: str, sdk_python: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"  # a file: the SDK sends the function's source
    script.write_text(SCRIPT)
    argv = [str(sdk_python), str(script), str(local_cluster.kubeconfig), cluster_namespace]

    def train() -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False)

    done = await anyio.to_thread.run_sync(train)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    shipped = {
        each["metadata"]["name"]: [
            each["metadata"]["labels"]["trainer.kubeflow.org/framework"],
            each["spec"]["mlPolicy"]["numNodes"],
        ]
        for folder in ("runtimes", "runtimes/data-cache")
        for each in resources.manifests(folder)
    }
    assert "torch-distributed" in shipped
    assert said["runtimes"] == shipped
    assert (said["status"], said["num_nodes"], said["runtime"]) == ("Complete", 2, "torch-distributed")
    assert said["steps"] == ["node-0", "node-1"]
    assert said["listed"] is True
    assert set(said["seen"]) <= {"Created", "Running", "Complete"}
