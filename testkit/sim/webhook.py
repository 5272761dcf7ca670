# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Admission: the manager's webhooks, the API server's own validation, and an administrator's webhook.

The module also defines objects of another purpose that have the names of children.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml
from controller_runtime.apis.core.v1 import ConfigMap, Secret
from controller_runtime.machinery import Object, errors
from controller_runtime.simtest import Review

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.schedulerplugins.v1alpha1 import PodGroup

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
