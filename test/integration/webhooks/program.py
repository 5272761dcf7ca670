# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Serve the TrainJob webhook as a process, with the shipped runtimes in memory; print the port and the certificate."""

import base64
import importlib.util
import ssl
import sys

import anyio
from controller_runtime import log, webhook
from controller_runtime.fake import FakeClient, completer
from controller_runtime.rest import load_chain
from controller_runtime.webhook import server_context
from trainerctl.offline.stored import schemas

from pkg import shipped, webhooks
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.runtime import core

PATH = "/validate-trainer-kubeflow-org-v1alpha1-trainjob"


class Fixed:
    """A certificate that does not change."""

    def __init__(self, certificate: bytes, key: bytes) -> None:
        self._context = server_context()
        load_chain(self._context, certificate, key)

    def context(self) -> ssl.SSLContext:
        return self._context


async def main() -> None:
    complete = completer(schemas()[ClusterTrainingRuntime.gvk])
    client = FakeClient()
    for manifest in shipped.manifests("runtimes"):
        client.add(ClusterTrainingRuntime.from_dict(complete(manifest)))
    validator = webhooks.validators(await core.new(client, client))[TrainJob]
    server = webhook.Server("127.0.0.1", 0)
    certificate, key = webhook.SelfSigned().pair()
    server.use(Fixed(certificate, key))
    server.register(PATH, webhook.ValidatorHandler(TrainJob, validator))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.start)
        await server.ready()
        sys.stdout.write(f"{server.port} {base64.b64encode(certificate).decode()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    log.configure(log.Options(verbosity=log.ERROR))
    anyio.run(main, backend_options={"use_uvloop": importlib.util.find_spec("uvloop") is not None})
