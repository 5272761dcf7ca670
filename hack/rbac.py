# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Write the ClusterRoles from the code's ``+kubebuilder:rbac`` markers: ``python -m hack.rbac [CONFIG]``.

The markers of ``pkg/podgrouper`` make the pod grouper's role, those beside the authorization of metrics the role for
``metrics.requireAuthorization``, and all others the manager's.
"""

from __future__ import annotations

import enum
import itertools
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import controller_runtime

import pkg

SOURCES: Final = tuple(Path(package.__file__ or "").parent for package in (pkg, controller_runtime))
Grant = tuple[str, str, str]
"""Group, resource and verb."""

_MARKER: Final = re.compile(r"^# \+kubebuilder:rbac:(\S+)$", re.MULTILINE)
_HEAD: Final = """\
# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
{note}# Written by `make manifests` from the `+kubebuilder:rbac` markers beside the code that needs each rule; edit those.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {name}
rules:
"""


class Part(enum.Enum):
    """A part of the program with a ClusterRole of its own."""

    MANAGER = enum.auto()
    POD_GROUPER = enum.auto()
    METRICS = enum.auto()


_PART_OF: Final = {"podgrouper": Part.POD_GROUPER, "metrics/filters.py": Part.METRICS}
"""The part that a folder or a module below a package belongs to; all others belong to the manager."""


def grants(text: str) -> set[Grant]:
    """Return the grants of the markers in a source text.

    Raises:
        ValueError: a marker lacks its groups, resources or verbs.
    """
    return set(_named_grants(text))


def collected(part: Part = Part.MANAGER, *, sources: Sequence[Path] = SOURCES) -> set[Grant]:
    """Return the grants of a part's markers."""
    return set(_collected(part, sources))


def resource_names(
    part: Part = Part.MANAGER, *, sources: Sequence[Path] = SOURCES
) -> dict[Grant, tuple[str, ...]]:
    """Return the grants of a part that its markers restrict to objects of certain names."""
    return {grant: names for grant, names in _collected(part, sources).items() if names}


def rules(
    wanted: Iterable[Grant], named: Mapping[Grant, tuple[str, ...]] | None = None
) -> list[dict[str, list[str]]]:
    """Return the fewest readable rules: resources of a group with the same verbs share one, then groups alike do."""
    verbs: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for group, resource, verb in sorted(set(wanted)):
        names = (named or {}).get((group, resource, verb), ())
        verbs.setdefault((group, resource, names), []).append(verb)
    resources: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, resource, names), allowed in verbs.items():
        resources.setdefault((group, tuple(allowed), names), []).append(resource)
    groups: dict[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, allowed_verbs, names), shared in resources.items():
        groups.setdefault((tuple(shared), allowed_verbs, names), []).append(group)
    made = [
        {"apiGroups": same, "resources": list(key[0])}
        | ({"resourceNames": list(key[2])} if key[2] else {})
        | {"verbs": list(key[1])}
        for key, same in groups.items()
    ]
    return sorted(made, key=lambda rule: (rule["apiGroups"], rule["resources"]))


def render() -> dict[str, str]:
    """Return the roles by their paths below ``config``."""
    return {
        "rbac/role.yaml": _role("kubeflow-trainer-controller-manager", Part.MANAGER),
        "podgrouper/role.yaml": _role(
            "kubeflow-trainer-pod-grouper",
            Part.POD_GROUPER,
            "# What the pod grouper needs; an installation without it does without this folder.\n",
        ),
        "metrics-authorization/role.yaml": _role(
            "kubeflow-trainer-metrics-authorization",
            Part.METRICS,
            "# What `metrics.requireAuthorization` needs; an installation without it does without this folder.\n",
        ),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write the roles that changed below the folder given."""
    arguments = sys.argv[1:] if argv is None else argv
    config = Path(arguments[0]) if arguments else Path("config")
    for name, text in render().items():
        path = config / name
        if path.exists() and path.read_text() == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        sys.stdout.write(f"wrote {path}\n")
    return 0


def _collected(part: Part, sources: Sequence[Path]) -> dict[Grant, tuple[str, ...]]:
    found: dict[Grant, tuple[str, ...]] = {}
    for package in sources:
        for path in sorted(package.rglob("*.py")):
            if _part_of(path.relative_to(package)) is part:
                for grant, names in _named_grants(path.read_text()).items():
                    found[grant] = _either(found.get(grant), names)
    return found


def _part_of(source: Path) -> Part:
    for place, part in _PART_OF.items():
        if source.is_relative_to(place):
            return part
    return Part.MANAGER


def _named_grants(text: str) -> dict[Grant, tuple[str, ...]]:
    """Return each grant of a source text, with the names of the objects it is restricted to."""
    found: dict[Grant, tuple[str, ...]] = {}
    for marker in _MARKER.findall(text):
        fields = dict(field.partition("=")[::2] for field in marker.split(","))
        try:
            lists = [fields[key].strip('"').split(";") for key in ("groups", "resources", "verbs")]
        except KeyError as error:
            raise ValueError(f"the marker {marker} has no {error}") from None
        names = tuple(filter(None, fields.get("resourceNames", "").split(";")))
        for group, resource, verb in itertools.product(*lists):
            grant = (group, resource, verb)
            found[grant] = _either(found.get(grant), names)
    return found


def _either(before: tuple[str, ...] | None, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that two markers of one grant allow together; none stands for every object."""
    if before is None:
        return names
    return tuple(sorted({*before, *names})) if before and names else ()


def _role(name: str, part: Part, note: str = "") -> str:
    lines = []
    for rule in rules(collected(part), resource_names(part)):
        lead = "  - "
        for key, values in rule.items():
            lines.append(f"{lead}{key}: [{', '.join(value or _EMPTY for value in values)}]\n")
            lead = "    "
    return _HEAD.format(note=note, name=name) + "".join(lines)


_EMPTY: Final = '""'


if __name__ == "__main__":
    sys.exit(main())
