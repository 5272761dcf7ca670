# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Make the ClusterRoles from the code's ``+kubebuilder:rbac`` markers.

The library has the generator, which writes one role; this module divides the markers among several roles.

A feature that is off by default has a role of its own: the markers of ``pkg/podgrouper`` make the pod grouper's role,
those beside the authorization of metrics the role for ``metrics.requireAuthorization``, those of ``pkg/statusserver``
the role for the feature gate ``TrainJobStatus``, those of ``pkg/controller/evidence.py`` the role for
``FailureEvidence``, and those of ``pkg/controller/ttl_after_finished.py`` the role for ``TTLAfterFinished``. All other
markers make the manager's role.
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
    """A part of the program with a ClusterRole of its own."""

    MANAGER = enum.auto()
    POD_GROUPER = enum.auto()
    METRICS = enum.auto()
    STATUS_SERVER = enum.auto()
    FAILURE_EVIDENCE = enum.auto()
    TTL_AFTER_FINISHED = enum.auto()


_PART_OF: Final = {
    "podgrouper": Part.POD_GROUPER,
    "metrics/filters.py": Part.METRICS,
    "statusserver": Part.STATUS_SERVER,
    "controller/evidence.py": Part.FAILURE_EVIDENCE,
    "controller/ttl_after_finished.py": Part.TTL_AFTER_FINISHED,
}
"""The part to which a folder or a module below a package belongs; all others belong to the manager."""


_ROLES: Final = {
    Part.MANAGER: ("rbac", "controller-manager", ""),
    Part.POD_GROUPER: ("podgrouper", "pod-grouper", "of the pod grouper. Without `podGrouper.enable`"),
    Part.METRICS: ("metrics-authorization",) * 2 + ("for `metrics.requireAuthorization`. Without it",),
    Part.STATUS_SERVER: ("status-server",) * 2 + ("for the feature gate `TrainJobStatus`. Without it",),
    Part.FAILURE_EVIDENCE: ("failure-evidence",) * 2
    + ("for the feature gate `FailureEvidence`. Without it",),
    Part.TTL_AFTER_FINISHED: ("ttl-after-finished",) * 2
    + ("for the feature gate `TTLAfterFinished`. Without it",),
}
"""The folder below ``config``, the end of the name, and the note of each part's role."""


def collected(part: Part = Part.MANAGER, *, sources: Sequence[Path] = SOURCES) -> set[Grant]:
    """Return the grants of a part's markers."""
    return set(_collected(part, sources))


def resource_names(
    part: Part = Part.MANAGER, *, sources: Sequence[Path] = SOURCES
) -> dict[Grant, tuple[str, ...]]:
    """Return the grants of a part that its markers restrict to objects of certain names, with these names."""
    return {grant: names for grant, names in _collected(part, sources).items() if names}


def render() -> dict[str, str]:
    """Return the roles by their paths below ``config``."""
    found = {}
    for part, (folder, name, needed_by) in _ROLES.items():
        note = f"# The permissions {needed_by}, this folder is not needed.\n" if needed_by else ""
        found[f"{folder}/role.yaml"] = _HEAD.format(note=note) + manifest(
            f"kubeflow-trainer-{name}", _collected(part, SOURCES)
        )
    return found


def _collected(part: Part, sources: Sequence[Path]) -> Grants:
    return merge(
        grants_in(path.read_text())
        for package in sources
        for path in markers.sources(package)
        if _part_of(path.relative_to(package)) is part
    )


def _part_of(source: Path) -> Part:
    for place, part in _PART_OF.items():
        if source.is_relative_to(place):
            return part
    return Part.MANAGER
