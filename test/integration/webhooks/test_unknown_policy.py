# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A podGroupPolicy that the installed CRD does not have: refused, or dropped with a warning for each user concerned."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment
from controller_runtime.rest import Request, Transport, warnings_in

from pkg.apis.trainer.v1alpha1 import TrainingRuntime
from testkit.builders import written_runtime
from testkit.clusters import job_set_at

pytestmark = pytest.mark.integration

Send = Callable[[str, str, dict[str, Any]], Any]
UNKNOWN = 'unknown field "spec.podGroupPolicy.gangs"'
NO_GANG = "the pods are not scheduled as a gang"


@pytest.fixture
def create(trainer_control_plane: Environment, namespace: str) -> Send:
    """Return a function that creates an object, and returns the server's answer and warnings."""

    async def send(plural: str, validation: str, document: dict[str, Any]) -> tuple[Any, list[str]]:
        path = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/{plural}"
        request = Request(
            "POST",
            path,
            query=(("fieldValidation", validation),),
            headers={"Content-Type": "application/json"},
            body=json.dumps(document).encode(),
        )
        async with Transport(trainer_control_plane.config) as transport:
            response = await transport.send(request)
            warnings = warnings_in(response.headers.get("Warning", ""))
            return json.loads(await response.read()), warnings

    return send


def document(kind: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "gang"}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def runtime() -> dict[str, Any]:
    template = written_runtime("any").to_dict()["spec"]["template"]
    return document("TrainingRuntime", podGroupPolicy={"gangs": {}}, template=template)


@pytest.mark.parametrize(("validation", "named"), [("Warn", True), ("Ignore", False)])
async def test_otherwise_it_is_dropped_and_each_user_is_warned(
    admitting_manager: Callable[[], AbstractAsyncContextManager[None]],
    create: Send,
    live_client: LiveClient,
    namespace: str,
    validation: str,
    named: bool,
) -> None:
    ref = {"kind": "TrainingRuntime", "name": "gang"}
    async with admitting_manager():
        stored, warnings = await create("trainingruntimes", validation, runtime())
        _, of_job = await create("trainjobs", validation, document("TrainJob", runtimeRef=ref))

        assert stored["spec"]["podGroupPolicy"] == {}
        assert any(UNKNOWN in each for each in warnings) is named
        assert [each.partition(":")[0] for each in warnings if NO_GANG in each] == ["spec.podGroupPolicy"]
        assert [each.partition(":")[0] for each in of_job if NO_GANG in each] == ["spec.runtimeRef"]
        await job_set_at(live_client, (namespace, "gang"))
        kept = await live_client.get(TrainingRuntime, (namespace, "gang"))
        assert kept.spec.pod_group_policy is not None
