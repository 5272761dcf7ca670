# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Make the files of the Helm chart that come from ``config``, and its values' schema.

Helm reads no file outside of a chart, and generators of schemas do not know the keys of the Configuration.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from controller_runtime.machinery import Struct, wire_name, yaml

from hack.reference import struct_of, type_of
from pkg.apis.config.v1alpha1 import Configuration
from pkg.config import RETIRED

_ROOT: Final = Path(__file__).parent.parent
_CONFIG: Final = _ROOT / "config"
CHART: Final = _ROOT / "charts" / "kubeflow-trainer"

_NOTE: Final = "# Written by `make manifests` from config/{}; edit that.\n"
_LICENSE: Final = """\
# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""
_ROLES: Final = {
    "manager": "rbac/role.yaml",
    "podgrouper": "podgrouper/role.yaml",
    "metrics-authorization": "metrics-authorization/role.yaml",
    "status-server": "status-server/role.yaml",
    "failure-evidence": "failure-evidence/role.yaml",
    "ttl-after-finished": "ttl-after-finished/role.yaml",
    "cache-initializer": "overlays/data-cache/cluster_role.yaml",
}
_TYPES: Final = {
    "boolean": "boolean",
    "integer": "number",
    "number": "number",
    "string": ["string", "null"],
    "list": ["array", "null"],
    "map": ["object", "null"],
}
"""JSON types by the first word of a setting's type."""


def files() -> dict[str, str]:
    """Return the text of each generated file by its path in the chart."""
    found = {}
    for path in sorted((_CONFIG / "crd" / "bases").glob("*.yaml")):
        found[f"files/crds/{path.name}"] = _text(path)
    found["files/crds-of-preview/optimizationjobs.yaml"] = _text(_CONFIG / "optimizationjobs" / "crd.yaml")
    for name, source in _ROLES.items():
        role = yaml.load_map((_CONFIG / source).read_text())
        found[f"files/rbac/{name}.yaml"] = _NOTE.format(source) + yaml.dump({"rules": role["rules"]})
    found["files/webhooks.yaml"] = _text(_CONFIG / "webhook" / "manifests.yaml")
    for path in sorted((_CONFIG / "runtimes").rglob("*.yaml")):
        if (data := yaml.load_map(path.read_text())).get("kind") == "ClusterTrainingRuntime":
            found[f"files/runtimes/{data['metadata']['name']}.yaml"] = _text(path)
    values = yaml.load_map((CHART / "values.yaml").read_text())
    found["values.schema.json"] = json.dumps(schema(values), indent=2) + "\n"
    return found


def schema(values: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a values file whose defaults are ``values``; it refuses all other keys.

    Below ``manager.config``, every key of the Configuration is permitted. ``global`` is permitted because Helm adds it.
    The values of the dependencies are not checked.
    """
    found = _schema(values, "")
    found["properties"] |= {"global": {"type": "object"}, "lws": {"type": "object"}}
    found["properties"]["jobset"]["additionalProperties"] = True
    return {"$schema": "http://json-schema.org/draft-07/schema#", **found}


def _schema(value: object, path: str) -> dict[str, Any]:
    if isinstance(value, dict):
        open_maps = ("ommonLabels", "groupKindConcurrency", "manager.securityContext", "manager.resources")
        if not value or path.endswith(open_maps):
            return {"type": _TYPES["map"]}
        if path == "manager.config":
            return _configuration()
        properties = {key: _schema(each, f"{path}.{key}".lstrip(".")) for key, each in value.items()}
        return {"type": "object", "properties": properties, "additionalProperties": False}
    if isinstance(value, list):
        return {"type": _TYPES["list"]}
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, int):
        return {"type": ["number", "string"] if path.endswith("maxUnavailable") else "number"}
    if path.endswith("tag"):
        return {"type": ["string", "number", "null"]}
    return {"type": _TYPES["string"]}


def _configuration() -> dict[str, Any]:
    """Return the schema of the Configuration's keys, including keys that have no effect any more."""
    found = _struct(Configuration)
    for key in ("apiVersion", "kind"):
        del found["properties"][key]
    for *above, last in RETIRED:
        of = found
        for step in above:
            of = of["properties"][step]
        of["properties"][last] = {}
    return found


def _struct(kind: type[Struct]) -> dict[str, Any]:
    properties = {}
    for name, info in kind.model_fields.items():
        if (inner := struct_of(info.annotation)) is not None:
            properties[wire_name(name, info)] = _struct(inner)
        else:
            properties[wire_name(name, info)] = {"type": _TYPES[type_of(info.annotation).partition(" ")[0]]}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _text(path: Path) -> str:
    text = path.read_text().removeprefix(_LICENSE).removeprefix("---\n")
    return _NOTE.format(path.relative_to(_CONFIG)) + text
