#!/usr/bin/env python3
# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Record the schemas and resources of Kubernetes' own kinds for the library: ``python -m hack.kubernetes_schema 1.36``.

No package has the schemas of all versions of all groups with their patch strategies.

An API server of that release is started with all versions of all groups, and its OpenAPI documents are read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from controller_runtime.envtest import Environment
from controller_runtime.machinery import JSON, openapi
from controller_runtime.rest import Request, Transport

_FLAGS: Final = (
    "--runtime-config=api/all=true",
    "--feature-gates=GenericWorkload=true,GangScheduling=true",
)
_PREFIXES: Final = ("io.k8s.apimachinery.pkg.apis.", "io.k8s.apimachinery.pkg.", "io.k8s.api.")
_KINDS: Final = "x-kubernetes-group-version-kind"
_DROPPED: Final = ("description", "enum", _KINDS, "x-kubernetes-unions")
"""Enums are dropped: CRDs that are generated from the Go types have no enums, and so admit values of later releases."""
_KEPT_BESIDE_REFERENCES: Final = ("x-kubernetes-patch-strategy",)


def record(
    documents: Iterable[Mapping[str, JSON]], resources: Iterable[Mapping[str, JSON]], kubernetes_version: str
) -> str:
    """Return the content of the record, from an API server's OpenAPI v3 documents and its APIResourceLists.

    Raises:
        KeyError: the documents do not contain a definition.
    """
    schemas: dict[str, JSON] = {}
    names: dict[tuple[str, str], str] = {}
    for document in documents:
        for full, schema in document["components"]["schemas"].items():
            schemas[_short(full)] = schema
            for each in schema.get(_KINDS, ()):
                names[f"{each['group']}/{each['version']}".lstrip("/"), each["kind"]] = _short(full)
    found: dict[str, JSON] = {}
    for listed in resources:
        subresources = {each["name"] for each in listed["resources"]}
        for each in listed["resources"]:
            if "/" not in each["name"]:
                found.setdefault(listed["groupVersion"], {})[each["kind"]] = {
                    "definition": names[listed["groupVersion"], each["kind"]],
                    "plural": each["name"],
                    "namespaced": each["namespaced"],
                    "status": f"{each['name']}/status" in subresources,
                }
    definitions: dict[str, dict[str, JSON]] = {}
    pending = [kind["definition"] for by_name in found.values() for kind in by_name.values()]
    while pending:
        if (name := pending.pop()) not in definitions:
            definitions[name] = _normal(schemas[name])
            pending.extend(_references(definitions[name]))
    parts = {
        "kubernetesVersion": json.dumps(kubernetes_version),
        "kinds": _lines(found),
        "definitions": _lines(definitions),
    }
    return "{" + ",\n".join(f'"{name}": {text}' for name, text in parts.items()) + "}\n"


def _lines(values: Mapping[str, JSON]) -> str:
    """Return a JSON object with a line for each field, so that a new record has a readable diff."""
    lines = [
        f"{json.dumps(name)}: {json.dumps(values[name], sort_keys=True, separators=(',', ':'))}"
        for name in sorted(values)
    ]
    return "{\n" + ",\n".join(lines) + "\n}"


def _short(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _references(node: JSON) -> Iterable[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):  # else it is a field of that name
            yield node["$ref"]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _normal(schema: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return a published schema in the form of a CRD: plain references, and only intended defaults.

    The API server publishes Go's zero values as defaults of required fields, items and structs.
    """
    result: dict[str, JSON] = {key: value for key, value in schema.items() if key not in _DROPPED}
    for wrapped in result.pop("allOf", ()):
        result.update(wrapped)
    if "$ref" in result:
        kept = {key: result[key] for key in _KEPT_BESIDE_REFERENCES if key in result}
        return {"$ref": _short(result["$ref"].rpartition("/")[2]), **kept}
    if "properties" in result:
        required = result.get("required", ())
        result["properties"] = {
            name: _without_default(_normal(each)) if name in required else _normal(each)
            for name, each in result["properties"].items()
        }
        if required:
            result["required"] = sorted(required)
    for key in ("items", "additionalProperties"):
        if isinstance(result.get(key), dict):
            result[key] = _without_default(_normal(result[key]))
    return result


def _without_default(schema: dict[str, JSON]) -> dict[str, JSON]:
    if schema.get("default") in ("", 0, {}):
        schema.pop("default")
    return schema


async def published(version: str) -> str:
    """Start an API server of a release, and return the record of its kinds."""
    async with (
        Environment(version=version, api_server_flags=_FLAGS) as environment,
        Transport(environment.config) as transport,
    ):

        async def read(path: str) -> dict[str, JSON]:
            response = await transport.send(Request("GET", path, headers={"Accept": "application/json"}))
            found: dict[str, JSON] = json.loads(await response.read())
            return found

        index = await read("/openapi/v3")
        paths = [
            path
            for path in index["paths"]
            if path == "api/v1" or (path.count("/") == 2 and path.startswith("apis/"))
        ]
        documents = [await read(f"/openapi/v3/{path}") for path in paths]
        resources = [await read(f"/{path}") for path in paths]
        found = await read("/version")
        return record(documents, resources, found["gitVersion"].removeprefix("v"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description="Record the schemas of Kubernetes' own kinds.")
    parser.add_argument("version", help="a release that envtest can start, such as 1.36")
    arguments = parser.parse_args(argv)
    text = asyncio.run(published(arguments.version))
    openapi.FILE.write_text(text)
    sys.stdout.write(f"recorded Kubernetes {openapi.version()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
