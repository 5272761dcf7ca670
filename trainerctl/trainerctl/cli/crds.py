# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl crds``: prints or applies Trainer's CRDs."""

from __future__ import annotations

import argparse

from controller_runtime.client import LiveClient
from controller_runtime.envtest import install_crds, wait_established
from controller_runtime.machinery import yaml
from controller_runtime.rest import Transport, load_config
from pkg import shipped

from trainerctl.cli.terminal import Console


async def crds_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the CRDs, or apply them and wait until they are served."""
    manifests = shipped.crds()
    if not arguments.apply:
        if arguments.output == "json":
            out.write_json({"apiVersion": "v1", "kind": "List", "items": manifests})
        else:
            out.file.write("---\n".join(yaml.dump(each) for each in manifests))
        return 0
    async with Transport(await load_config(arguments.kubeconfig)) as transport:
        client = LiveClient(transport)
        names = await install_crds(client, manifests)
        await wait_established(client, names)
    for name in names:
        out.say(f"{name} serverside-applied")
    return 0
