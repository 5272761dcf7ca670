# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The example plugin is installed like any package, and the manager finds and uses it."""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trainerctl
import yaml
from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object
from controller_runtime.reconcile import Request
from controller_runtime.webhook import ValidatorHandler

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.controller import TrainJobReconciler
from pkg.runtime import core
from pkg.runtime.core import TrainingRuntime
from pkg.runtime.framework import Framework
from pkg.runtime.framework.plugins.registry import new_registry
from pkg.webhooks import TrainJobWebhook
from testkit.builders import (
    make_cluster_training_runtime,
    make_replicated_job,
    make_train_job,
    make_training_runtime_spec,
)

PACKAGE = Path(__file__).parents[3] / "examples" / "interconnect_plugin"
FABRIC = "interconnect.example.com/fabric"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package into a folder, from the checkout and without a network."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(target)]
    done = subprocess.run([*pip, *offline, str(PACKAGE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    yield
    sys.modules.pop("interconnect_plugin", None)


class NoEvents:
    def event(self, obj: Object, event_type: str, reason: str, message: str) -> None:
        raise AssertionError(f"{obj.name}: {event_type} {reason}: {message}")


def runtime() -> ClusterTrainingRuntime:
    job = make_replicated_job("node", ancestor="trainer", env={"NCCL_PROTO": "ll128"})
    return make_cluster_training_runtime(spec=make_training_runtime_spec(job))


def environment(job_set: JobSet) -> dict[str, Any]:
    (job,) = job_set.spec.replicated_jobs or []
    (container,) = job.template.spec.template.spec.containers or []
    return {env.name: env.value for env in container.env or ()}


@pytest.mark.usefixtures("installed")
async def test_a_reconcile_runs_the_plugin() -> None:
    train_job = make_train_job("team-a", "llama", annotations={FABRIC: "efa"})
    client = FakeClient(runtime(), train_job)
    reconciler = TrainJobReconciler(client, NoEvents(), await core.new(client, client))

    await reconciler.reconcile(Request("team-a", "llama"))

    built = await client.get(JobSet, ("team-a", "llama"))
    assert environment(built) == {"NCCL_PROTO": "ll128", "FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("fabric", "allowed"), [("efa", True), ("carrier-pigeon", False)])
async def test_the_webhook_asks_the_plugin(fabric: str, allowed: bool) -> None:
    client = FakeClient(runtime())
    webhook = ValidatorHandler(TrainJob, TrainJobWebhook(await core.new(client, client)))
    train_job = make_train_job("team-a", "llama", annotations={FABRIC: fabric})

    verdict = await webhook.handle(AdmissionRequest(uid="1", operation="CREATE", object=train_job.to_dict()))

    assert verdict.allowed is allowed
    if not allowed and verdict.status is not None:
        assert verdict.status.message == (
            f'spec.annotations[{FABRIC}]: Unsupported value: "carrier-pigeon": '
            'supported values: "efa", "infiniband"'
        )


@pytest.mark.usefixtures("installed")
async def test_the_order_of_the_plugins_does_not_matter() -> None:
    client = FakeClient()
    plugins = [await factory(client, client) for factory in new_registry().values()]
    mine = next(plugin for plugin in plugins if plugin.name == "Interconnect")
    others = [plugin for plugin in plugins if plugin is not mine]
    train_job = make_train_job("team-a", "llama", annotations={FABRIC: "infiniband"})
    built = []
    for order in ([mine, *others], [*others, mine]):
        served = TrainingRuntime(Framework(order), client)
        built.append([obj.to_dict() for obj in await served.objects_from(runtime().spec, train_job)])
    assert all(one == other for one, other in itertools.pairwise(built))


@pytest.mark.usefixtures("installed")
def test_explain_shows_it_among_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert trainerctl.main(["explain", "-f", str(PACKAGE / "trainjob.yaml")]) == 0

    out = capsys.readouterr().out
    _, _, after = out.partition("\n  Interconnect\n")
    assert after.startswith(
        '    job node, container node\n      + env[FI_PROVIDER]             "efa"  ← spec.annotations\n'
    )


def test_without_the_package_nobody_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert trainerctl.main(["render", "-f", str(PACKAGE / "trainjob.yaml")]) == 0
    (job_set,) = yaml.safe_load_all(capsys.readouterr().out)
    assert "FI_PROVIDER" not in str(job_set)


def test_a_program_that_is_started_beside_it_finds_it(site: Path) -> None:
    root = Path(__file__).parents[3]
    program = [sys.executable, "-m", "trainerctl", "render", "-f"]
    done = subprocess.run(
        [*program, str(PACKAGE / "trainjob.yaml")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(root / "trainerctl"), str(root)])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "FI_PROVIDER" in done.stdout
