# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""One CRD set for clients of Trainer v2.1 and v2.3: the answers of a real API server to each set, and to ours.

``test/testdata/crd/admission.json`` holds an object, whose fields it uses, and the recorded answers with either CRD set.
"""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from controller_runtime.client import LiveClient
from controller_runtime.envtest import Environment
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.errors import InvalidError, StatusError

pytestmark = pytest.mark.integration
Document = dict[str, Any]
CASES = json.loads((Path(__file__).parents[2] / "testdata" / "crd" / "admission.json").read_text())
FIRST, SECOND = "v2.1.0", "v2.3.0"


def admitted_by(case: Document) -> list[str]:
    """Return the releases whose CRDs admit the case's object; none if ours must refuse it.

    For fields of one generation, its release decides, and comes first. Fields of both need the consent of both.
    """
    allowing = [release for release in (FIRST, SECOND) if case["want"][release]["allowed"]]
    if case["name"].endswith("-too-big"):
        return []
    match case["fields"]:
        case "first":
            return [FIRST, *(set(allowing) - {FIRST})] if FIRST in allowing else []
        case "second":
            return [SECOND, *(set(allowing) - {SECOND})] if SECOND in allowing else []
        case "both":
            return allowing if len(allowing) == 2 else []
    return allowing


def merged(a: Any, b: Any) -> Any:
    """Return the fields that at least one of two stored objects has; ``a`` wins where both have one."""
    if isinstance(a, dict) and isinstance(b, dict):
        return {
            key: merged(a[key], b[key]) if key in a and key in b else a.get(key, b.get(key)) for key in a | b
        }
    return a


def cluster_scoped(case: Document) -> bool:
    return bool(case["object"]["kind"] == "ClusterTrainingRuntime")


async def send(client: LiveClient, case: Document, namespace: str) -> Document:
    """Send the case's object as its client does, and return the stored object."""

    def named(data: Document) -> Unstructured:
        data = copy.deepcopy(data)
        data["metadata"] |= {"name": f"u-{namespace}"[:63].rstrip("-")}
        if not cluster_scoped(case):
            data["metadata"]["namespace"] = namespace
        return Unstructured.wrap(data)

    if "old" not in case:
        return (await client.create(named(case["object"]), dry_run=True)).to_dict()
    old = await client.create(named(case["old"]))
    new = named(case["object"])
    new.metadata.resource_version = old.metadata.resource_version
    try:
        if case.get("subresource") == "status":
            return (await client.status.update(new)).to_dict()
        return (await client.update(new)).to_dict()
    finally:
        await client.delete(named(case["old"]))


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
async def test_a_case_is_admitted_and_stored_as_its_generation_has_it(
    trainer_control_plane: Environment, live_client: LiveClient, namespace: str, case: Document
) -> None:
    del trainer_control_plane
    wanted = admitted_by(case)
    if wanted:
        stored = await send(live_client, case, namespace)
        for part in ("spec", "status"):
            want: Any = {}
            for release in wanted:
                want = merged(want, case["want"][release].get(part) or {})
            assert stored.get(part, {}) == want
        return
    with pytest.raises(StatusError) as refusal:
        await send(live_client, case, namespace)
    assert isinstance(refusal.value, InvalidError)
    if not case["name"].endswith("-too-big"):
        fields = {cause.get("field") for cause in refusal.value.causes}
        both = [set(case["want"][release].get("fields") or ()) for release in (FIRST, SECOND)]
        assert fields in (*both, both[0] | both[1])
