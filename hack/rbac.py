# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Write the ClusterRoles from the code's ``+kubebuilder:rbac`` markers: ``python -m hack.rbac [CONFIG]``.

The library has the generator, which writes one role; this module divides the markers among several roles.

A feature that is off by default has a role of its own: the markers of ``pkg/podgrouper`` make the pod grouper's role,
those beside the authorization of metrics the role for ``metrics.requireAuthorization``, those of ``pkg/statusserver``
the role for the feature gate ``TrainJobStatus``, and those of ``pkg/controller/evidence.py`` the role for
``FailureEvidence``. All other markers make the manager's role.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import controller_runtime
from controller_runtime.tools import files, markers
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


_PART_OF: Final = {
    "podgrouper": Part.POD_GROUPER,
    "metrics/filters.py": Part.METRICS,
    "statusserver": Part.STATUS_SERVER,
    "controller/evidence.py": Part.FAILURE_EVIDENCE,
}
"""The part to which a folder or a module below a package belongs; all others belong to the manager."""


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
    return {
        "rbac/role.yaml": _role("kubeflow-trainer-controller-manager", Part.MANAGER),
        "podgrouper/role.yaml": _role(
            "kubeflow-trainer-pod-grouper",
            Part.POD_GROUPER,
            "# The permissions of the pod grouper. Without `podGrouper.enable`, this folder is not needed.\n",
        ),
        "metrics-authorization/role.yaml": _role(
            "kubeflow-trainer-metrics-authorization",
            Part.METRICS,
            "# The permissions for `metrics.requireAuthorization`. Without it, this folder is not needed.\n",
        ),
        "status-server/role.yaml": _role(
            "kubeflow-trainer-status-server",
            Part.STATUS_SERVER,
            "# The permissions for the feature gate `TrainJobStatus`. Without it, this folder is not needed.\n",
        ),
        "failure-evidence/role.yaml": _role(
            "kubeflow-trainer-failure-evidence",
            Part.FAILURE_EVIDENCE,
            "# The permissions for the feature gate `FailureEvidence`. Without it, this folder is not needed.\n",
        ),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write the changed roles into the folder that the command line names, by default ``config``."""
    arguments = sys.argv[1:] if argv is None else argv
    config = Path(arguments[0]) if arguments else Path("config")
    for path in files.write(config, render()):
        sys.stdout.write(f"wrote {path}\n")
    return 0


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


def _role(name: str, part: Part, note: str = "") -> str:
    return _HEAD.format(note=note) + manifest(name, _collected(part, SOURCES))


if __name__ == "__main__":
    sys.exit(main())
