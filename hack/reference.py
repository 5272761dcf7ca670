# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Make the reference pages from the code.

mkdocstrings documents Python's names; users see the names of fields on the wire, flags as Go parses them, keys of a
file, and metrics. Generators for references of CRDs read Go, and those for argparse leave out the examples of commands.
"""

from __future__ import annotations

import argparse
import json
import re
import types
import typing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from controller_runtime import metrics
from controller_runtime.machinery import JSON, Object, Struct, wire_name
from controller_runtime.machinery.crd import custom_resource_definition
from prometheus_client.metrics import MetricWrapperBase
from trainerctl.cli import parser
from trainerctl.cli.help import EXAMPLES, leaves

import pkg.metrics
from hack.manifests import KINDS
from pkg.apis.config.v1alpha1 import Configuration, set_defaults
from pkg.app.flags import FLAGS
from pkg.app.goflags import Flag
from pkg.app.podgrouper.flags import FLAGS as POD_GROUPER_FLAGS
from pkg.statusserver import server as statusserver
from pkg.util import cert

_NOTE: Final = "<!-- Generated from the code by `make manifests`; do not edit. -->\n"
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
_ARGUMENT: Final = ("argument", "meaning")


def pages() -> dict[str, str]:
    """Return each page's text by its file's name."""
    return {
        "api.md": _api(),
        "configuration.md": _configuration(),
        "flags.md": _flags(),
        "metrics.md": _metrics(),
        "trainerctl.md": _trainerctl(parser.parser()),
    }


def _configuration() -> str:
    cfg = Configuration()
    set_defaults(cfg)
    rows = list(_keys(cfg, ""))
    return (
        f"# Configuration\n\n{_NOTE}\n"
        f"The file that `--config` names, with `apiVersion: {Configuration.gvk.api_version}` and "
        "`kind: Configuration`.\nIt is read strictly: a key that is not in this table, or that occurs twice, is an "
        "error. A missing key has its default;\nwithout `--config`, all keys have their defaults.\n\n"
        + _table(("key", "type", "default", "meaning"), rows)
    )


def _keys(struct: Struct, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, field in type(struct).model_fields.items():
        key = f"{prefix}{wire_name(name, field)}"
        value = getattr(struct, name)
        if key in {"apiVersion", "kind"}:
            continue
        kind = struct_of(field.annotation)
        if kind is not None:
            if field.description:
                yield f"`{key}`", "object", "", field.description
            yield from _keys(value if value is not None else kind(), f"{key}.")
            continue
        yield f"`{key}`", type_of(field.annotation), _default(value), field.description or ""


def struct_of(annotation: object) -> type[Struct] | None:
    """Return the struct in the annotation of a field, or None if it has none."""
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return annotation
    return next(filter(None, map(struct_of, typing.get_args(annotation))), None)


def type_of(annotation: object) -> str:
    """Return the type of a setting in the words of the reference."""
    if isinstance(annotation, types.UnionType):
        return " or ".join(type_of(each) for each in typing.get_args(annotation) if each is not type(None))
    if typing.get_origin(annotation) is dict:
        return f"map of {type_of(typing.get_args(annotation)[1])}"
    if typing.get_origin(annotation) is list:
        return f"list of {type_of(typing.get_args(annotation)[0])}"
    names: dict[object, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(annotation, "anything")


def _default(value: object) -> str:
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f'`"{value}"`' if value == "" else f"`{value}`"


def _flags() -> str:
    head = ("flag", "meaning")
    ours, theirs = dict(_rows(FLAGS)), _rows(POD_GROUPER_FLAGS)
    same = ", ".join(name for name, meaning in theirs if ours.get(name) == meaning)
    return (
        f"# Flags of the manager\n\n{_NOTE}\n"
        "Flags are parsed as in Go: with one dash or two, as `--flag=value` or `--flag value`.\n\n"
        f"{_table(head, ours.items())}\n"
        "## Those of the program podgrouper\n\n"
        "They include the flags of the pod grouper of KAI-Scheduler v0.13 to v0.17, with the same defaults; `--rules` "
        "and `--tracing` are new.\n"
        f"These flags mean the same as above: {same}.\n\n"
        f"{_table(head, [row for row in theirs if row[1] != ours.get(row[0])])}"
    )


def _rows(flags: Iterable[Flag]) -> list[tuple[str, str]]:
    return [(f"`--{flag.name}`", flag.usage.replace("*", "\\*")) for flag in flags]


def _metrics() -> str:
    owners = (metrics.registry, pkg.metrics.metrics, cert.METRICS, statusserver)
    found = {id(each): each for owner in owners for each in vars(owner).values()}
    own: list[tuple[str, ...]] = []
    theirs: list[tuple[str, ...]] = []
    for metric in (each for each in found.values() if isinstance(each, MetricWrapperBase)):
        name = f"`{metric._name}{'_total' if metric._type == 'counter' else ''}`"
        row = (name, str(metric._type), ", ".join(metric._labelnames), metric._documentation)
        (own if metric._name.startswith("kubeflow_trainer") else theirs).append(row)
    (degraded,) = pkg.metrics.KIND_DEGRADED.describe()
    own.append((f"`{degraded.name}`", "gauge", "group, version, kind", degraded.documentation))
    head = ("series", "type", "labels", "meaning")
    return (
        f"# Metrics\n\n{_NOTE}\nServed at `/metrics` of `metrics.bindAddress`, "
        "together with metrics of the process (`process_*`, `python_*`).\n\n"
        f"## Metrics of the manager\n\n{_table(head, sorted(own))}\n"
        "## Metrics of controller-runtime and client-go\n\n"
        "Names, labels and buckets are those of the Go libraries; the series `controller_runtime_cache_*` and "
        "`controller_runtime_turn_*` are new.\n\n"
        f"{_table(head, sorted(theirs))}"
    )


def _api() -> str:
    """Return the page: every field of Trainer's kinds and of Trainer's own types below them, in the models' order."""
    sections: dict[type[Struct], str] = {}
    kinds = sorted(KINDS, key=lambda kind: kind.gvk.kind)
    for kind in kinds:
        root = custom_resource_definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for model, schema in _models_below(kind, root):
            if model not in sections:
                sections[model] = _api_section(model, schema, "".join(sections.values()))
    (group,) = {kind.gvk.api_version for kind in kinds}
    named = ", ".join(f"[`{kind.gvk.kind}`](#{kind.gvk.kind.lower()})" for kind in kinds)
    return (
        f"# API\n\n{_NOTE}\n"
        f"The kinds of `{group}` are {named}.\n"
        "Fields of Kubernetes' own types, such as `PodTemplateSpec`, are those of Kubernetes. "
        "`trainerctl crds` prints the CustomResourceDefinitions.\n" + "".join(sections.values())
    )


def _models_below(
    model: type[Struct], schema: dict[str, JSON]
) -> Iterator[tuple[type[Struct], dict[str, JSON]]]:
    """Yield the model and Trainer's own models below it, each with its schema."""
    yield model, schema
    for name, info in model.model_fields.items():
        wire = wire_name(name, info)
        nested = _own(info.annotation)
        if nested is not None and wire in schema["properties"]:
            below = schema["properties"][wire]
            yield from _models_below(nested, below.get("items", below))


def _api_section(model: type[Struct], schema: dict[str, JSON], above: str) -> str:
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
    table = _table(("field", "type", "meaning"), rows) if rows else "It has no fields.\n"
    rules = "".join(f"\n- {rule['message']}" for rule in schema.get("x-kubernetes-validations", []))
    return f"\n## {model.__name__}\n\n{text}{table}" + (f"\nRules:\n{rules}\n" if rules else "")


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
    found = struct_of(annotation)
    named = "" if found is None else found.__name__
    if _own(annotation) is not None:
        named = f"[{named}](#{named.lower()})"
    if schema.get("type") == "array":
        return f"list of {named or schema['items'].get('type', 'any')}"
    if schema.get("type") == "object" and isinstance(values := schema.get("additionalProperties"), dict):
        return f"map of {values.get('type', 'any')}"
    return named or (
        "integer or string" if schema.get("x-kubernetes-int-or-string") else str(schema.get("type", "any"))
    )


def _own(annotation: object) -> type[Struct] | None:
    found = struct_of(annotation)
    return found if found is not None and found.__module__.startswith("pkg.") else None


def _code(value: JSON) -> str:
    return f"`{json.dumps(value) if isinstance(value, bool) or value == '' else value}`"


def _sentence(text: str) -> str:
    text = re.sub(r"([*_<>])", r"\\\1", " ".join(text.replace("``", "`").split()))
    return text if not text or text.endswith((".", ":")) else f"{text}."


def _trainerctl(parser: argparse.ArgumentParser) -> str:
    """Return the page: a section for each command, with its arguments and examples.

    Arguments that mean the same for at least three commands are explained once, below the introduction.
    """
    commands = {each: _arguments(each) for each in leaves(parser).values()}
    shared: dict[str, str] = {}
    for (name, text), count in Counter(row for rows in commands.values() for row in rows).most_common():
        if count >= 3:
            shared.setdefault(name, text)
    return (
        f"# trainerctl\n\n{_NOTE}\n{parser.description}\n\n"
        "Results go to standard output and everything else to standard error. The exit code is 0 for success, "
        "1 for a failure, 2 for an invalid\n"
        "command line or input, and 128 plus the number of the signal that ended the command. "
        "`trainerctl run` returns\nthe manager's exit code.\n\n"
        "## Shared arguments\n\nSeveral commands have these arguments; their sections only name them.\n\n"
        + _table(_ARGUMENT, shared.items())
        + "".join(_command_section(each, rows, shared) for each, rows in commands.items())
    )


def _arguments(parser: argparse.ArgumentParser) -> list[tuple[str, str]]:
    actions = [each for each in parser._actions if each.help != argparse.SUPPRESS and each.dest != "help"]
    return [(f"`{_named(each)}`", _help(each)) for each in actions]


def _command_section(
    parser: argparse.ArgumentParser, rows: list[tuple[str, str]], shared: Mapping[str, str]
) -> str:
    own = [(name, text) for name, text in rows if shared.get(name) != text]
    others = ", ".join(name for name, text in rows if shared.get(name) == text)
    program, _, command = parser.prog.partition(" ")
    examples = "".join(f"# {about}\n{program} {line}\n" for about, line in EXAMPLES.get(command, ()))
    parts = (
        parser.description,
        _table(_ARGUMENT, own).rstrip("\n") if own else "",
        f"[Shared](#shared-arguments): {others}" if others else "",
        parser.epilog,
        f"```\n{examples}```" if examples else "",
    )
    return f"\n## {parser.prog}\n" + "".join(f"\n{each}\n" for each in parts if each)


def _named(action: argparse.Action) -> str:
    if action.option_strings:
        names = ", ".join(action.option_strings)
        return names if action.nargs == 0 else f"{names} {_value(action)}"
    return _value(action) + ("…" if action.nargs in ("+", "*", argparse.REMAINDER) else "")


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return "|".join(str(each) for each in action.choices)
    named = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return f"{named}…" if action.option_strings and action.nargs in ("+", "*") else named


def _help(action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": ""}
    return re.sub(r"([*_<>])", r"\\\1", text)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; cells may contain pipes."""
    head = list(head)
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in (head, *rows)]
    return "".join((lines[0], "|---" * len(head) + "|\n", *lines[1:]))
