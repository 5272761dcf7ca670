# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Names that older releases gave to a Job's groups: used while such a group exists."""

from __future__ import annotations

from typing import Final

from controller_runtime import log
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.client import Reader
from controller_runtime.machinery import Unstructured
from controller_runtime.machinery.errors import NotFoundError

from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.constants import kai

from . import fields
from .errors import AccessorError

_log: Final = log.logger_from("podgrouper")


async def existing_legacy_name(client: Reader, job: Unstructured, pod: Pod) -> str | None:
    """Return the older release's name of the pod's group if that group exists, else None.

    Raises:
        StatusError: looking for the group failed for a reason other than its absence.
    """
    name = legacy_name(job, pod)
    if not await group_exists(client, pod.namespace, name):
        return None
    _log.debug("Using legacy pod group", podGroup=f"{pod.namespace}/{name}")
    return name


async def group_exists(client: Reader, namespace: str, name: str) -> bool:
    """Return True if the group exists. Raises like :func:`existing_legacy_name`."""
    try:
        await client.get(PodGroup, (namespace, name))
    except NotFoundError:
        return False
    return True


def legacy_name(job: Unstructured, pod: Pod) -> str:
    """Return the old name: after the pod in a parallel Job, else after the Job."""
    try:
        parallelism = fields.nested_int64(job, "spec", "parallelism")
    except AccessorError:  # a malformed Job counts as a Job of one pod
        parallelism = None
    base = pod.name if parallelism is not None and parallelism > 1 else job.name
    return f"{kai.POD_GROUP_NAME_PREFIX}-{base}-{job.metadata.uid or ''}"
