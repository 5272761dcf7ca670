# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Make the reference of the API's fields from the models of Trainer's kinds and their CustomResourceDefinitions.

Generators for references of CRDs read Go, and mkdocstrings shows the names of Python, not those of the wire.
"""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterator
from typing import Final

from controller_runtime.machinery import JSON, Object, Struct, wire_name
from controller_runtime.machinery.crd import custom_resource_definition

from hack.manifests import KINDS
from hack.markdown import NOTE, table

_CONSTRAINTS: Final = {
    "enum": "one of",
    "minimum": "at least",
    "maximum": "at most",
    "minLength": "length at least",
    "maxLength": "length at most",
    "minItems": "items at least",
    "maxItems": "items at most",
    "pattern": "pattern",
    "default": "default",
}
_SKIPPED: Final = {"apiVersion", "kind", "metadata"}


def page() -> str:
    """Return the page: every field of Trainer's kinds and of Trainer's own types below them, in the models' order."""
    sections: dict[type[Struct], str] = {}
    kinds = sorted(KINDS, key=lambda kind: kind.gvk.kind)
    for kind in kinds:
        root = custom_resource_definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for model, schema in _models(kind, root):
            if model not in sections:
                sections[model] = _section(model, schema, "".join(sections.values()))
    (group,) = {kind.gvk.api_version for kind in kinds}
    named = ", ".join(f"[`{kind.gvk.kind}`](#{kind.gvk.kind.lower()})" for kind in kinds)
    return (
        f"# API\n\n{NOTE}\n"
        f"The kinds of `{group}` are {named}.\n"
        "Fields of Kubernetes' own types, such as `PodTemplateSpec`, are those of Kubernetes. "
        "`trainerctl crds` prints the CustomResourceDefinitions.\n" + "".join(sections.values())
    )


def _models(model: type[Struct], schema: dict[str, JSON]) -> Iterator[tuple[type[Struct], dict[str, JSON]]]:
    """Yield the model and Trainer's own models below it, each with its schema."""
    yield model, schema
    for name, info in model.model_fields.items():
        wire = wire_name(name, info)
        nested = _own(info.annotation)
        if nested is not None and wire in schema["properties"]:
            below = schema["properties"][wire]
            yield from _models(nested, below.get("items", below))


def _section(model: type[Struct], schema: dict[str, JSON], above: str) -> str:
    """Return the section of a model, without its description if the row that links to it has the same."""
    required = schema.get("required", [])
    rows = []
    for name, info in model.model_fields.items():
        wire = wire_name(name, info)
        if issubclass(model, Object) and wire in _SKIPPED:
            continue
        below = schema["properties"][wire]
        description = _sentence(below.get("description", ""))
        meaning = [description]
        if wire in required:
            meaning.insert(0, "Required.")
        if _own(info.annotation) is None:  # the section of a type has the rules of the type
            meaning += _constraints(below, with_default="default" not in description.lower())
        rows.append((f"`{wire}`", _type(info.annotation, below), " ".join(each for each in meaning if each)))
    text = _sentence(schema.get("description", ""))
    text = "" if f"(#{model.__name__.lower()}) | {text} |" in above else f"{text}\n\n"
    rules = "".join(f"\n- {rule['message']}" for rule in schema.get("x-kubernetes-validations", []))
    return (
        f"\n## {model.__name__}\n\n{text}"
        + (table(("field", "type", "meaning"), rows) if rows else "It has no fields.\n")
        + (f"\nRules:\n{rules}\n" if rules else "")
    )


def _constraints(schema: dict[str, JSON], *, with_default: bool) -> Iterator[str]:
    if (schema.get("minimum"), schema.get("maximum")) == (-(2**31), 2**31 - 1):
        yield "A number has 32 bits."
        schema = {key: value for key, value in schema.items() if key not in ("minimum", "maximum")}
    for key, words in _CONSTRAINTS.items():
        if key in schema and (key != "default" or with_default):
            value = schema[key]
            shown = ", ".join(map(_code, value)) if key == "enum" else _code(value)
            yield f"{words[0].upper()}{words[1:]} {shown}."
    for rule in schema.get("x-kubernetes-validations", []):
        yield f"Rule: {_sentence(rule['message'])}"


def _type(annotation: object, schema: dict[str, JSON]) -> str:
    own = _own(annotation)
    if schema.get("type") == "array":
        item = schema["items"]
        return f"list of {_reference(own) if own else _foreign(annotation) or item.get('type', 'any')}"
    if own is not None:
        return _reference(own)
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map of {schema['additionalProperties'].get('type', 'any')}"
    if (foreign := _foreign(annotation)) is not None:
        return foreign
    return "integer or string" if schema.get("x-kubernetes-int-or-string") else str(schema.get("type", "any"))


def _reference(model: type[Struct]) -> str:
    return f"[{model.__name__}](#{model.__name__.lower()})"


def _own(annotation: object) -> type[Struct] | None:
    found = _struct(annotation)
    return found if found is not None and found.__module__.startswith("pkg.") else None


def _foreign(annotation: object) -> str | None:
    found = _struct(annotation)
    return None if found is None else found.__name__


def _struct(annotation: object) -> type[Struct] | None:
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return annotation
    return next(filter(None, map(_struct, typing.get_args(annotation))), None)


def _code(value: JSON) -> str:
    return f"`{json.dumps(value) if isinstance(value, bool) or value == '' else value}`"


def _sentence(text: str) -> str:
    text = re.sub(r"([*_<>])", r"\\\1", " ".join(text.replace("``", "`").split()))
    return text if not text or text.endswith((".", ":")) else f"{text}."
