# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl group``: what group each pod in files would get from the pod grouper, and why."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any, Final

from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.apis.machinery.gvk import GVK
from controller_runtime.apis.machinery.object import Object, unstructured
from controller_runtime.apis.scheduling.v1 import PriorityClass

from pkg import config, podgrouper
from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.cli import options
from pkg.cli.terminal import Console
from pkg.constants import kai
from pkg.offline import inputfiles
from pkg.offline.snapshot import Key, key_of
from pkg.offline.text import one_line
from pkg.offline.trace.grouping import Explanation, Objects, explain

_MODELS: Final[dict[GVK, type[Object]]] = {
    kind.gvk: kind for kind in (ConfigMap, Pod, PodGroup, PriorityClass)
}
"""What groupers read by a model; the rest is looked at as it is."""
_UNTOLD: Final = f"annotations[{kai.TOP_OWNER_METADATA_KEY}]"
"""Says once more what the owners say."""


async def group_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the groups; 1 if a pod would get none though it should."""
    try:
        settings = podgrouper.settings(config.load(arguments.config))
    except config.ConfigurationError as error:
        raise inputfiles.InputError(str(error)) from error
    objects = given(await inputfiles.load(arguments.files), arguments.namespace)
    pods = [key for key in objects if key.kind == Pod.gvk]
    if not pods:
        raise inputfiles.InputError("the input contains no Pod; give pods together with their owners")
    try:
        explained = [await explain(objects, pod, settings) for pod in pods]
    except podgrouper.GrouperLoadError as error:
        options.say(err, str(error))
        return 1
    if arguments.output == "text":
        for each in explained:
            _print(each, out)
    else:
        data = {"pods": [as_data(each) for each in explained]}
        (out.write_json if arguments.output == "json" else out.write_yaml)(data)
    for each in explained:
        if each.refusal:
            options.say(err, f"{_named(each.pod)}: {each.refusal}")
    return 1 if any(each.refusal for each in explained) else 0


def given(found: list[inputfiles.InputObject], namespace: str) -> Objects:
    """Return the objects by key, as they are written down.

    Raises:
        InputError: one is a duplicate, has no name, or its metadata, or a pod, is malformed.
    """
    objects: Objects = {}
    first: dict[Key, inputfiles.InputObject] = {}
    for document in found:
        document.decode(_MODELS.get(document.gvk) or unstructured(document.gvk))
        key = key_of(document.data, namespace)
        if not key.name:
            raise document.error(("metadata", "name"), "a name is expected")
        if key in objects:
            before = first[key]
            raise document.error((), f"duplicate of {before.source}, document {before.number}")
        objects[key], first[key] = document.data, document
    return objects


def as_data(explanation: Explanation) -> dict[str, Any]:
    """Return an explanation as JSON."""
    data: dict[str, Any] = {"pod": f"{explanation.pod.namespace}/{explanation.pod.name}"}
    if explanation.left_alone:
        return {**data, "leftAlone": explanation.left_alone}
    if explanation.owners:
        data["owners"] = [
            {"apiVersion": key.kind.api_version, "kind": key.kind.kind, "name": key.name}
            for key in explanation.owners
        ]
        data["grouper"] = explanation.grouper
    if explanation.missing:
        data["missing"] = [str(key) for key in explanation.missing]
    if explanation.refusal:
        return {**data, "refused": explanation.refusal}
    return {**data, "group": explanation.values, "dueTo": explanation.sources}


def _print(explanation: Explanation, out: Console) -> None:
    out.say((one_line(_named(explanation.pod)), "bold"))
    rows = [(one_line(name), one_line(value), one_line(due)) for name, value, due in _rows(explanation)]
    width = max(len(name) for name, _, _ in rows)
    for name, value, due in rows:
        why = f"{'  ' if value else ''}← {due}" if due else ""
        style = "bold red" if name == "refused" else "cyan"
        out.say("  ", (name.ljust(width), style), "  ", value, (why, "dim"))
    out.say()


def _rows(explanation: Explanation) -> Iterator[tuple[str, str, str]]:
    """Yield names, values, and what those are due to."""
    if explanation.left_alone:
        yield "left alone", explanation.left_alone, ""
    if explanation.owners:
        yield "owners", " → ".join(map(str, explanation.owners)), ""
        yield "grouper", explanation.grouper, ""
    for name, value in explanation.values.items():
        if name == _UNTOLD:
            continue
        due = ", ".join(explanation.sources.get(name, ())) or ("" if name == "owner" else "by default")
        if isinstance(value, list):
            yield name, "", due
            yield from (("", _flow(each), "") for each in value)
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), due
    if explanation.missing:
        yield "not given", ", ".join(map(str, explanation.missing)), ""
    if explanation.refusal:
        yield "refused", explanation.refusal, ""


def _flow(sub_group: dict[str, Any]) -> str:
    rest = (f"{name} {_flow(held) if isinstance(held, dict) else held}" for name, held in sub_group.items())
    return ", ".join(rest).removeprefix("name ")


def _named(pod: Key) -> str:
    return f"Pod {pod.namespace}/{pod.name}"
