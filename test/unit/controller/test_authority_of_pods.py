# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The ConfigMap with the status server's authority follows the authority while the TrainJob's pods run."""

from __future__ import annotations

import base64

import pytest
from controller_runtime.apis.core.v1 import ConfigMap, Secret

from pkg import config, features
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime
from testkit.trainjobs import PLAIN, ReconcilerWorld, world

AUTHORITY = ("ns", "job-tls-config")


def secret(authority: str) -> Secret:
    data = {"ca.crt": base64.b64encode(authority.encode()).decode()}
    return Secret.from_dict({"metadata": {"namespace": "kubeflow-system", "name": "certs"}, "data": data})


async def reporting() -> ReconcilerWorld:
    """Return a world whose running TrainJob reports its progress."""
    w = await world(PLAIN, secret("OLD"))
    cfg = config.load()
    cfg.cert_management.webhook_secret_name = "certs"
    w.cfg = cfg.model_copy(update={"feature_gates": {features.TRAIN_JOB_STATUS: True}})
    await w.restart()
    await w.reconcile()
    await w.server.observe(active=1)
    return w


async def edit_runtime(w: ReconcilerWorld) -> None:
    runtime = await w.server.get(ClusterTrainingRuntime, ("", "rt"))
    assert runtime.spec.ml_policy is not None
    runtime.spec.ml_policy.num_nodes = 3
    containers = (runtime.spec.template.spec.replicated_jobs or [])[0].template.spec.template.spec.containers
    (containers or [])[0].command = ["new"]
    await w.server.update(runtime)


@pytest.mark.parametrize("edited", ["neither", "the TrainJob", "the runtime"])
@pytest.mark.parametrize("missing", [False, True])
async def test_it_follows_whatever_was_edited_since_the_start(edited: str, missing: bool) -> None:
    w = await reporting()
    if edited == "the TrainJob":
        await w.edit_image()
    elif edited == "the runtime":
        await edit_runtime(w)
    assert await w.reconcile() == []
    stored = await w.server.get(Secret, ("kubeflow-system", "certs"))
    stored.data = secret("NEW").data
    await w.server.update(stored)
    if missing:
        await w.server.delete(await w.server.get(ConfigMap, AUTHORITY))

    assert await w.reconcile() == ["apply ConfigMap"]

    assert (await w.server.get(ConfigMap, AUTHORITY)).data == {"ca.crt": "NEW"}
    assert await w.image() == "one"
    # No webhook notes suspensions here, so any edit of the TrainJob may have been made during one.
    expected = ["Warning JobSetNotFollowing"] if edited == "the TrainJob" else []
    assert [each.split(":")[0] for each in w.recorder.events] == expected
    assert await w.reconcile() == []
