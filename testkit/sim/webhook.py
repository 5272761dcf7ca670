# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Admission: the manager's webhooks, the API server's own validation, and an administrator's webhook.

The module also defines objects of another purpose that have the names of children.
"""

from __future__ import annotations

import functools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.fake import ownership
from controller_runtime.machinery import NamespacedName, Object, errors
from controller_runtime.simtest import Review, Simulation

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup
from pkg.apis.trainer.v1alpha1 import TrainJob

Document = dict[str, Any]
_CONTAINER: Document = {"name": "c", "image": "x"}
_JOBS = [{"name": "other", "template": {"spec": {"template": {"spec": {"containers": [_CONTAINER]}}}}}]
FOREIGN: dict[type[Object], tuple[str, Document]] = {
    JobSet: ("", {"spec": {"replicatedJobs": _JOBS, "suspend": True}}),
    PodGroup: ("", {"spec": {"minMember": 1}}),
    ConfigMap: ("-mpi-hostfile", {"data": {"hostfile": "other"}}),
    Secret: ("-mpi-ssh-auth", {"data": {"other": "eA=="}}),
}
"""Objects of another purpose with the names of children: name suffix and content, by kind."""
PURPOSE = "example.com/purpose"
"""The label of these objects."""


_TUNED = frozenset("13579")
_MANIFESTS = Path(__file__).parents[2] / "config" / "webhook" / "manifests.yaml"


@functools.cache
def configurations() -> tuple[dict[str, Any], ...]:
    """Return the webhook configurations of an installation without match conditions: every TrainJob is reviewed."""
    found = tuple(yaml.safe_load_all(_MANIFESTS.read_text(encoding="utf-8")))
    for hook in (hook for configuration in found for hook in configuration["webhooks"]):
        hook.pop("matchConditions", None)
    return found


async def review_secret(review: Review) -> None:
    """Refuse changes of an immutable Secret, as the API server does."""
    new, old = review.new, review.old
    if new is not None and old is not None and old.get("immutable") and new.get("data") != old.get("data"):
        text = (
            f'Secret "{new["metadata"]["name"]}" is invalid: data: Forbidden: '
            "field is immutable when `immutable` is set"
        )
        raise errors.InvalidError(text, code=422, reason="Invalid")


async def tune(review: Review) -> None:
    """Change some siblings when they are created, like an administrator's webhook that is not called for updates."""
    new = review.new
    if review.operation != "CREATE" or new is None or PURPOSE in (new["metadata"].get("labels") or {}):
        return
    if not _TUNED.intersection(new["metadata"]["name"]):
        return
    if "scheduleTimeoutSeconds" in new.get("spec", {}):
        new["spec"]["scheduleTimeoutSeconds"] = 7
    elif "hostfile" in new.get("data", {}):
        new["data"]["hostfile"] = new["data"]["hostfile"].replace("slots=", "slots=7")


Manager = tuple[str, str, str]
"""A field manager: its name, its operation, and the subresource that it writes."""


class ManagedFields:
    """Shows the owners of a TrainJob's fields to the webhooks: the simulated server stores them, but never shows them.

    Register :meth:`show` before the webhooks, and :meth:`hide` after them.
    """

    def __init__(self, sim: Simulation) -> None:
        self._table = sim.server.table(TrainJob)
        self._times: dict[tuple[str, Manager], str] = {}
        """The time of the last write, by the uid of the TrainJob and its writer."""

    async def show(self, review: Review) -> None:
        """Add the managed fields before the write to the old object, and those after the write to the new one."""
        new, old = review.new, review.old
        if new is None or old is None:
            return
        metadata, schema = old["metadata"], self._table.properties.schema
        row = self._table.rows.get(NamespacedName(metadata["namespace"], metadata["name"]))
        if row is None:
            return
        review.old = self._shown(old, {(*who,): fields for who, fields in row.owners.items()})
        writer = (review.user, "Update", "")
        written, removed = ownership.difference(old, new, schema)
        owners: dict[Manager, ownership.FieldSet] = {
            (*who,): fields - removed - written for who, fields in row.owners.items()
        }
        if written:
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            owners[writer] = owners.get(writer, frozenset()) | written
            self._times[metadata["uid"], writer] = now
        review.new = self._shown(new, {who: fields for who, fields in owners.items() if fields})

    async def hide(self, review: Review) -> None:
        """Remove the managed fields from the new object, which is stored next."""
        if review.new is not None:
            review.new["metadata"].pop("managedFields", None)

    def _shown(self, document: Document, owners: dict[Manager, ownership.FieldSet]) -> Document:
        metadata = document["metadata"]
        entries = []
        for who, fields in owners.items():
            name, operation, subresource = who
            whole: Document = {}
            for path in sorted(fields, key=ownership.text):
                below = whole
                for step in path:
                    below = below.setdefault(_shown_step(step), {})
                if isinstance(path[-1], ownership.Item):
                    below["."] = {}
            entries.append(
                {
                    "manager": name,
                    "operation": operation,
                    "apiVersion": TrainJob.gvk.api_version,
                    "time": self._times.get((metadata["uid"], who), metadata["creationTimestamp"]),
                    "fieldsType": "FieldsV1",
                    "fieldsV1": whole,
                    **({"subresource": subresource} if subresource else {}),
                }
            )
        return {**document, "metadata": {**metadata, "managedFields": entries}}


def _shown_step(step: ownership.Step) -> str:
    if isinstance(step, str):
        return f"f:{step}"
    if isinstance(step, ownership.Item):
        return f"k:{json.dumps(dict(step.keys), separators=(',', ':'), ensure_ascii=False)}"
    return f"v:{json.dumps(step.value)}"
