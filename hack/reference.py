# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Make the reference pages from the code.

mkdocstrings documents Python's names; users see flags as Go parses them, keys of a file, and metrics.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator

from controller_runtime import metrics
from controller_runtime.machinery import Struct, wire_name
from prometheus_client.metrics import MetricWrapperBase
from pydantic.fields import FieldInfo
from trainerctl.cli import parser

import pkg.metrics
from hack import apifields, commands
from hack.markdown import NOTE, table
from pkg.apis.config.v1alpha1 import Configuration, set_defaults
from pkg.app.flags import FLAGS
from pkg.app.goflags import Flag
from pkg.app.podgrouper.flags import FLAGS as POD_GROUPER_FLAGS
from pkg.statusserver import server as statusserver
from pkg.util import cert


def pages() -> dict[str, str]:
    """Return each page's text by its file's name."""
    return {
        "api.md": apifields.page(),
        "configuration.md": _configuration(),
        "flags.md": _flags(),
        "metrics.md": _metrics(),
        "trainerctl.md": commands.page(parser.parser()),
    }


def _configuration() -> str:
    cfg = Configuration()
    set_defaults(cfg)
    rows = list(_keys(cfg, ""))
    return (
        f"# Configuration\n\n{NOTE}\n"
        f"The file that `--config` names, with `apiVersion: {Configuration.gvk.api_version}` and "
        "`kind: Configuration`.\nIt is read strictly: a key that is not in this table, or that occurs twice, is an "
        "error. A missing key has its default;\nwithout `--config`, all keys have their defaults.\n\n"
        + table(("key", "type", "default", "meaning"), rows)
    )


def _keys(struct: Struct, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, field in type(struct).model_fields.items():
        key = f"{prefix}{wire_name(name, field)}"
        value = getattr(struct, name)
        if key in {"apiVersion", "kind"}:
            continue
        kind = struct_of(field)
        if kind is not None:
            if field.description:
                yield f"`{key}`", "object", "", field.description
            yield from _keys(value if value is not None else kind(), f"{key}.")
            continue
        yield f"`{key}`", type_of(field.annotation), _default(value), field.description or ""


def struct_of(field: FieldInfo) -> type[Struct] | None:
    """Return the struct that a field of the Configuration holds, or None if the field holds no struct."""
    for each in (field.annotation, *typing.get_args(field.annotation)):
        if isinstance(each, type) and issubclass(each, Struct):
            return each
    return None


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
        f"# Flags of the manager\n\n{NOTE}\n"
        "Flags are parsed as in Go: with one dash or two, as `--flag=value` or `--flag value`.\n\n"
        f"{table(head, ours.items())}\n"
        "## Those of the program podgrouper\n\n"
        "They include the flags of the pod grouper of KAI-Scheduler v0.13 to v0.17, with the same defaults; `--rules` "
        "and `--tracing` are new.\n"
        f"These flags mean the same as above: {same}.\n\n"
        f"{table(head, [row for row in theirs if row[1] != ours.get(row[0])])}"
    )


def _rows(flags: Iterable[Flag]) -> list[tuple[str, str]]:
    return [(f"`--{flag.name}`", flag.usage.replace("*", "\\*")) for flag in flags]


def _metrics() -> str:
    own: list[tuple[str, ...]] = []
    theirs: list[tuple[str, ...]] = []
    for metric in _wrappers():
        row = (
            f"`{_exported_name(metric)}`",
            str(metric._type),
            ", ".join(metric._labelnames),
            metric._documentation,
        )
        (own if metric._name.startswith("kubeflow_trainer") else theirs).append(row)
    (degraded,) = pkg.metrics.KIND_DEGRADED.describe()
    own.append((f"`{degraded.name}`", "gauge", "group, version, kind", degraded.documentation))
    head = ("series", "type", "labels", "meaning")
    return (
        f"# Metrics\n\n{NOTE}\nServed at `/metrics` of `metrics.bindAddress`, "
        "together with metrics of the process (`process_*`, `python_*`).\n\n"
        f"## Metrics of the manager\n\n{table(head, sorted(own))}\n"
        "## Metrics of controller-runtime and client-go\n\n"
        "Names, labels and buckets are those of the Go libraries; the series `controller_runtime_cache_*` and "
        "`controller_runtime_turn_*` are new.\n\n"
        f"{table(head, sorted(theirs))}"
    )


def _wrappers() -> list[MetricWrapperBase]:
    owners = (metrics.registry, pkg.metrics.metrics, cert.METRICS, statusserver)
    found = {id(each): each for owner in owners for each in vars(owner).values()}
    return [each for each in found.values() if isinstance(each, MetricWrapperBase)]


def _exported_name(metric: MetricWrapperBase) -> str:
    return f"{metric._name}_total" if metric._type == "counter" else str(metric._name)
