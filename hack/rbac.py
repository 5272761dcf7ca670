# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Make the ClusterRoles from the code's ``+kubebuilder:rbac`` markers.

The library's generator writes one role from all markers that it is given; this module divides them among several roles:
a feature that is off by default has a role of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import controller_runtime
from controller_runtime.tools import markers
from controller_runtime.tools.rbac import Grant as Grant
from controller_runtime.tools.rbac import Grants, grants_in, manifest, merge
from controller_runtime.tools.rbac import rules as rules

import pkg

SOURCES: Final = tuple(Path(package.__file__ or "").parent for package in (pkg, controller_runtime))
_HEAD: Final = """\
# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
{note}# Written by `make manifests` from the `+kubebuilder:rbac` markers beside the code that needs each rule; edit those.
"""  # noqa: E501 -- the comment is one line of a file


class Part(enum.Enum):
    """A part of the program with a ClusterRole of its own.

    The values are the folder or the module of the part below a package, the folder of the role below ``config``, the
    end of the role's name, and what needs the role. What is in no other part belongs to the manager.
    """

    POD_GROUPER = "podgrouper", "podgrouper", "pod-grouper", "of the pod grouper. Without `podGrouper.enable`"
    METRICS = (
        "metrics/filters.py",
        *("metrics-authorization",) * 2,
        "for `metrics.requireAuthorization`. Without it",
    )
    STATUS_SERVER = (
        "statusserver",
        *("status-server",) * 2,
        "for the feature gate `TrainJobStatus`. Without it",
    )
    FAILURE_EVIDENCE = (
        "controller/evidence.py",
        *("failure-evidence",) * 2,
        "for the feature gate `FailureEvidence`. Without it",
    )
    TTL_AFTER_FINISHED = (
        "controller/ttl_after_finished.py",
        *("ttl-after-finished",) * 2,
        "for the feature gate `TTLAfterFinished`. Without it",
    )
    MANAGER = "", "rbac", "controller-manager", ""


def collected(part: Part = Part.MANAGER, *, sources: Sequence[Path] = SOURCES) -> set[Grant]:
    """Return the grants of a part's markers."""
    return set(_collected(part, sources))


def resource_names(part: Part = Part.MANAGER) -> dict[Grant, tuple[str, ...]]:
    """Return the grants of a part that its markers restrict to objects of certain names, with these names."""
    return {grant: names for grant, names in _collected(part, SOURCES).items() if names}


def render() -> dict[str, str]:
    """Return the roles by their paths below ``config``."""
    found = {}
    for part in Part:
        _, folder, name, needed_by = part.value
        note = f"# The permissions {needed_by}, this folder is not needed.\n" if needed_by else ""
        role = manifest(f"kubeflow-trainer-{name}", _collected(part, SOURCES))
        found[f"{folder}/role.yaml"] = _HEAD.format(note=note) + role
    return found


def _collected(part: Part, sources: Sequence[Path]) -> Grants:
    return merge(
        grants_in(path.read_text())
        for package in sources
        for path in markers.sources(package)
        if part is next(each for each in Part if path.relative_to(package).is_relative_to(each.value[0]))
    )
