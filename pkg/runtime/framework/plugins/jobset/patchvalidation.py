# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Validation of a TrainJob's runtime patches and of changes to them.

The names of jobs and containers in the patches are not checked here. If the template lacks a named job or container,
the patch is refused when it is merged (:mod:`pkg.runtime.core`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from controller_runtime.client import Reader
from controller_runtime.machinery import JSON, equality, field, names

from pkg.apis.trainer.v1alpha1 import RuntimePatch, TrainJob
from pkg.constants import trainer as constants
from pkg.util import generations

from .validation import RESERVED, RESERVED_ENV, forbid_active_jobs

_PATCHES: Final = field.Path("spec").child("runtimePatches")
_HTTP_PATH: Final = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+"


def validate_patches(job: TrainJob) -> field.ErrorList:
    """Check that managers are domain-prefixed paths, and that no patch sets the environment of a reserved container."""
    errors = field.ErrorList()
    quoted = field.Quoted(job.spec.runtime_patches)
    reserved = field.invalid(_PATCHES, quoted, RESERVED_ENV)
    for patch in generations.runtime_patches(job.spec):
        errors += _manager(patch.manager)
        errors += [
            reserved
            for _, pod in generations.pod_patches(patch)
            for container in pod.containers or ()
            if container.env and container.name in RESERVED
        ]
    return errors


async def validate_patch_changes(client: Reader, old: TrainJob | None, new: TrainJob) -> field.ErrorList:
    """Check that the update may change the runtime patches.

    The TrainJob must be suspended before or after the update, and none of its jobs may be active. Kueue's entry may
    be added or removed at any time if it has no value: the webhook does so (:mod:`pkg.webhooks.kueue`). The mirror of
    the first generation's fields is not checked while these fields are present, because they have their own rules.
    """
    if old is None or equality.deep_equal(_effective(old), _effective(new)):
        return field.ErrorList()
    if not old.spec.suspend and not new.spec.suspend:
        detail = (
            "RuntimePatches can only be modified when the TrainJob is suspended before or after the update"
        )
        return field.ErrorList([field.forbidden(_PATCHES, detail)])
    return await forbid_active_jobs(client, new, _PATCHES, "RuntimePatches")


def _effective(train_job: TrainJob) -> list[RuntimePatch]:
    """Return the runtime patches without an entry of Kueue that has no value."""
    return [
        patch
        for patch in generations.runtime_patches(train_job.spec)
        if patch.manager != constants.KUEUE_MANAGER or _has_value(patch.to_dict().get("trainingRuntimeSpec"))
    ]


def _has_value(document: JSON) -> bool:
    if isinstance(document, dict):
        return any(map(_has_value, document.values()))
    return document not in (None, [])


def _manager(manager: str) -> Iterator[field.FieldError]:
    """Yield an error if a manager is not a domain-prefixed path. The text is the same as the API server's text."""
    path = _PATCHES.child("manager")
    if not manager:
        yield field.required(path, "")
        return
    domain, _, rest = manager.partition("/")
    if not domain or not rest:
        yield field.invalid(path, manager, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    for problem in names.is_dns1123_subdomain(domain):
        yield field.invalid(path, domain, problem)
    if not re.fullmatch(_HTTP_PATH, rest):
        yield field.invalid(path, rest, names.regex_error("Invalid path", _HTTP_PATH))
