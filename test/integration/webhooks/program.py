# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The TrainJob webhook as a process of its own, with the shipped runtimes in memory; prints the port it serves at."""

import copy
import importlib.util
import sys

import anyio

from pkg import webhooks
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.cli import resources, structural, validate
from pkg.ctrl import log, webhook
from pkg.ctrl.client import FakeClient
from pkg.runtime import core

PATH = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"


async def main() -> None:
    schema = validate.schemas()[ClusterTrainingRuntime.gvk]
    client = FakeClient()
    for manifest in resources.manifests("runtimes"):
        stored = copy.deepcopy(manifest)
        structural.default(schema, stored)
        client.add(ClusterTrainingRuntime.from_dict(stored))
    validator = webhooks.validators(await core.new(client, client))[TrainJob]
    server = webhook.Server("127.0.0.1", 0)
    server.use(webhook.SelfSigned())
    server.register(PATH, webhook.ValidatorHandler(TrainJob, validator))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.start)
        await server.ready()
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    log.configure(log.Options(verbosity=log.ERROR))
    anyio.run(main, backend_options={"use_uvloop": importlib.util.find_spec("uvloop") is not None})
