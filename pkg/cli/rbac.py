# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Write the ClusterRoles from the code's ``+kubebuilder:rbac`` markers: ``python -m pkg.cli.rbac [CONFIG]``.

The markers of ``pkg/podgrouper`` make the pod grouper's role, those of every other room the manager's.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import pkg

SOURCES: Final = Path(pkg.__file__).parent
Grant = tuple[str, str, str]
"""Group, resource and verb."""

_MARKER: Final = re.compile(r"^# \+kubebuilder:rbac:(\S+)$", re.MULTILINE)
_GROUPER: Final = "podgrouper"
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


def grants(text: str) -> set[Grant]:
    """Return what the markers in a source text ask for.

    Raises:
        ValueError: a marker lacks its groups, resources or verbs.
    """
    found: set[Grant] = set()
    for marker in _MARKER.findall(text):
        fields = dict(field.partition("=")[::2] for field in marker.split(","))
        try:
            lists = [fields[key].strip('"').split(";") for key in ("groups", "resources", "verbs")]
        except KeyError as error:
            raise ValueError(f"the marker {marker} has no {error}") from None
        found |= set(itertools.product(*lists))
    return found


def collected(*, grouper: bool, sources: Path = SOURCES) -> set[Grant]:
    """Return what the pod grouper asks for, or what everything else does."""
    found: set[Grant] = set()
    for path in sorted(sources.rglob("*.py")):
        if path.is_relative_to(sources / _GROUPER) is grouper:
            found |= grants(path.read_text())
    return found


def rules(wanted: Iterable[Grant]) -> list[dict[str, list[str]]]:
    """Return the fewest readable rules: resources of a group with the same verbs share one, then groups alike do."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for group, resource, verb in sorted(set(wanted)):
        verbs.setdefault((group, resource), []).append(verb)
    resources: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), allowed in verbs.items():
        resources.setdefault((group, tuple(allowed)), []).append(resource)
    groups: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, allowed_verbs), named in resources.items():
        groups.setdefault((tuple(named), allowed_verbs), []).append(group)
    made = [
        {"apiGroups": named, "resources": list(key[0]), "verbs": list(key[1])}
        for key, named in groups.items()
    ]
    return sorted(made, key=lambda rule: (rule["apiGroups"], rule["resources"]))


def render() -> dict[str, str]:
    """Return both roles by their paths below ``config``."""
    note = "# What the pod grouper needs; an installation without it does without this folder.\n"
    return {
        "rbac/role.yaml": _role("kubeflow-trainer-controller-manager", collected(grouper=False)),
        "podgrouper/role.yaml": _role("kubeflow-trainer-pod-grouper", collected(grouper=True), note),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Write the roles that changed below the folder given."""
    arguments = sys.argv[1:] if argv is None else argv
    config = Path(arguments[0]) if arguments else SOURCES.parent / "config"
    for name, text in render().items():
        path = config / name
        if path.exists() and path.read_text() == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        sys.stdout.write(f"wrote {path}\n")
    return 0


def _role(name: str, wanted: Iterable[Grant], note: str = "") -> str:
    lines = []
    for rule in rules(wanted):
        lead = "  - "
        for key, values in rule.items():
            lines.append(f"{lead}{key}: [{', '.join(value or _EMPTY for value in values)}]\n")
            lead = "    "
    return _HEAD.format(note=note, name=name) + "".join(lines)


_EMPTY: Final = '""'


if __name__ == "__main__":
    sys.exit(main())
