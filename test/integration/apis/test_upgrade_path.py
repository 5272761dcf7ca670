# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""CRDs of Trainer v2.1.0, then ours, then those of v2.3.0, and back: the fields of stored objects that each step keeps.

``docs/migration.md`` has the table of these steps. The CRDs of the two releases are read from the reference, if present.
"""

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import yaml
from controller_runtime.client import LiveClient, raw_patch
from controller_runtime.envtest import CRD, Environment, wait_established
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.errors import InvalidError, NotFoundError
from controller_runtime.rest import RESTMapper, Transport

from pkg import shipped

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = Path(os.environ.get("TRAINER_REFERENCE") or ROOT.parent / "shared" / "reference") / "crds"
MERGE = "application/merge-patch+json"
WORD = "trainer.kubeflow.org/num-proc-per-node"
Document = dict[str, Any]

FIRST: Document = {
    "podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"a": "b"}}}],
    "labels": {"l": "1"},
    "annotations": {"n": "1"},
}
SECOND: Document = {"runtimePatches": [{"manager": "a.io/b"}], "activeDeadlineSeconds": 60}
SHARED: Document = {"initializer": {"dataset": {"storageUri": "no-scheme"}}, "trainer": {"image": "i" * 600}}
TORCH: Document = {"numProcPerNode": 4, "elasticPolicy": {"minNodes": 1, "maxNodes": 2}}


class World:
    """An API server whose CRDs are replaced."""

    def __init__(self, transport: Transport, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.client = LiveClient(transport, RESTMapper(transport))

    async def use(self, manifests: list[Document]) -> None:
        """Replace the CRDs, as ``kubectl replace`` does, and wait until the server decodes objects with them."""
        names = [each["metadata"]["name"] for each in manifests]
        for manifest in manifests:
            crd = Unstructured.wrap(msgspec.json.decode(msgspec.json.encode(manifest)))
            try:
                stored = await self.client.get(CRD, ("", crd.name))
            except NotFoundError:
                await self.client.create(crd)
            else:
                crd.metadata.resource_version = stored.metadata.resource_version
                await self.client.update(crd)
        await wait_established(self.client, names)

    async def read(self, name: str, kind: str = "TrainJob") -> Document:
        found = Unstructured.wrap(document(name, {}, kind))
        return (await self.client.get(type(found), found.key)).to_dict()

    async def touch(self, name: str, kind: str = "TrainJob") -> Document:
        """Write an object without changing its spec, as a controller does; return its spec."""
        body = msgspec.json.encode({"metadata": {"annotations": {"touched": os.urandom(4).hex()}}})
        patched = await self.client.patch(Unstructured.wrap(document(name, {}, kind)), raw_patch(MERGE, body))
        spec: Document = patched.to_dict()["spec"]
        return spec


def document(name: str, spec: Document, kind: str = "TrainJob") -> Document:
    metadata = {"name": name, **({"namespace": "default"} if kind == "TrainJob" else {})}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def reference(release: str) -> list[Document]:
    folder = REFERENCE / f"trainer-{release}"
    if not folder.is_dir():
        pytest.skip(f"the CRDs of Trainer {release} are not at {folder}")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [yaml.load(path.read_text(), Loader=loader) for path in sorted(folder.glob("*.yaml"))]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    reference("v2.1.0")
    kubeconfig = tmp_path / "kubeconfig"
    async with Environment() as server, Transport(server.config) as transport:
        kubeconfig.write_text(json.dumps(server.kubeconfig_for("admin", ["system:masters"])))
        yield World(transport, kubeconfig)


async def create(world: World, name: str, spec: Document) -> None:
    spec = {"runtimeRef": {"name": "torch"}, "suspend": True, **spec}
    await world.client.create(Unstructured.wrap(document(name, spec)))


def kept(wanted: Document, spec: Document) -> list[str]:
    """Return the names of the wanted fields that a spec still has with the wanted values."""
    return [name for name, value in wanted.items() if spec.get(name) == value]


async def migrate(world: World, *flags: str) -> list[str]:
    """Run ``trainerctl migrate`` for all namespaces; return the lines that it prints."""
    command = [
        sys.executable,
        "-m",
        "trainerctl",
        "migrate",
        "-A",
        "--kubeconfig",
        str(world.kubeconfig),
        *flags,
    ]
    ran = await anyio.run_process(command, check=True)
    return ran.stdout.decode().splitlines()


async def rewrite_strings(world: World) -> None:
    """Rewrite the three strings, after a dry run that stores nothing."""
    dry, done = await migrate(world, "--dry-run"), await migrate(world)
    assert len(done) == 3
    assert [line.removesuffix(" (dry run)") for line in dry] == done
    assert await migrate(world) == ["no TrainJob stores numProcPerNode as a string"]


@pytest.mark.timeout(300)
async def test_what_each_step_of_an_upgrade_and_of_the_way_back_keeps(world: World) -> None:
    template = {
        "spec": {
            "replicatedJobs": [
                {"name": "node", "template": {"spec": {"template": {"spec": {"containers": []}}}}}
            ]
        }
    }
    await world.use(reference("v2.1.0"))
    runtime = document(
        "torch", {"mlPolicy": {"torch": TORCH}, "template": template}, "ClusterTrainingRuntime"
    )
    await world.client.create(Unstructured.wrap(runtime))
    await create(world, "first", FIRST)
    await create(world, "shared", SHARED)
    for name, value in (("word", "auto"), ("text", "4"), ("late", "gpu")):
        await create(world, name, {"trainer": {"numProcPerNode": value}})

    # v2.1.0 to ours: all fields are kept, and all objects can be written.
    await world.use(shipped.crds())
    await create(world, "second", SECOND)
    await create(world, "both", {**FIRST, **SECOND})
    assert kept(FIRST, await world.touch("first")) == list(FIRST)
    assert kept(SHARED, await world.touch("shared")) == list(SHARED)
    assert (await world.touch("torch", "ClusterTrainingRuntime"))["mlPolicy"]["torch"] == TORCH
    for name in ("word", "text"):
        await world.touch(name)

    # Ours to v2.3.0 without the rewrite: a stored string blocks every write, so the only way is back to ours.
    await world.use(reference("v2.3.0"))
    with pytest.raises(InvalidError, match="expected int, got string"):
        await world.touch("word")
    await world.use(shipped.crds())
    await world.touch("word")

    # With the rewrite, every object can be written.
    await rewrite_strings(world)
    assert (await world.read("word"))["metadata"]["annotations"][WORD] == "auto"
    assert (await world.read("text"))["spec"]["trainer"] == {"numProcPerNode": 4}
    await world.use(reference("v2.3.0"))
    for name in ("word", "text", "late", "second", "shared"):
        await world.touch(name)
    assert kept(SECOND, await world.touch("second")) == list(SECOND)
    assert kept(SHARED, await world.touch("shared")) == list(SHARED)
    # v2.3.0 does not show the first generation's fields, and drops them at the next write.
    assert kept(FIRST, (await world.read("first"))["spec"]) == []
    both = await world.touch("both")
    assert (kept(FIRST, both), kept(SECOND, both)) == ([], list(SECOND))

    # Back to ours: fields that were not written meanwhile are there again.
    await world.use(shipped.crds())
    assert kept(FIRST, (await world.read("first"))["spec"]) == list(FIRST)
    assert kept(FIRST, (await world.read("both"))["spec"]) == []
    assert kept(SECOND, await world.touch("both")) == list(SECOND)
    assert (await world.touch("torch", "ClusterTrainingRuntime"))["mlPolicy"]["torch"] == TORCH

    # Back to v2.1.0: the next write drops the second generation's fields; the word stays in its annotation.
    await world.use(reference("v2.1.0"))
    assert kept(FIRST, await world.touch("first")) == list(FIRST)
    assert kept(SECOND, (await world.read("second"))["spec"]) == []
    assert (await world.read("word"))["metadata"]["annotations"][WORD] == "auto"
    for name in ("first", "second", "both", "shared", "word", "text", "late"):
        await world.client.delete(Unstructured.wrap(document(name, {})))
