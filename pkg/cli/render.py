# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl render``: the objects that TrainJobs would become, without a cluster."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pkg.apis.core.v1 import Container, ResourceRequirements
from pkg.apis.jobset.v1alpha2 import JobSet, ReplicatedJob
from pkg.apis.machinery.object import Object

from . import offline, yamljson
from .offline import Subject

_SSH_AUTH: Final = "kubernetes.io/ssh-auth"
_NOT_SHOWN: Final = "<made by the manager, anew for each TrainJob>"

Rendered = list[tuple[Subject, list[Object]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``render`` to ``parser``."""
    offline.add_arguments(parser, outputs=("yaml", "json", "table"))
    parser.set_defaults(run=render_command)


async def render_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print what the TrainJobs would become; 1 if one of them would become nothing for an error."""
    given = await offline.load(arguments)
    offline.say_warnings(given, err)
    rendered: Rendered = []
    code = 0
    for subject in given.subjects:
        try:
            rendered.append((subject, await offline.objects(given, subject.train_job)))
        except offline.RefusedError as error:
            code = 1
            offline.say(err, str(error))
    if arguments.output == "table":
        for subject, objects in rendered:
            _print_tables(subject, objects, out)
    elif arguments.output == "json":
        items = [document(obj) for _, objects in rendered for obj in objects]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2, ensure_ascii=False)
        out.file.write(f"{text}\n")
    else:
        out.file.writelines(_yaml(rendered))
    return code


def document(obj: Object) -> dict[str, Any]:
    """Return an object as it is shown: keys that would be made anew anyway are left out."""
    data = obj.to_dict()
    if data.get("type") == _SSH_AUTH:
        data["stringData"] = dict.fromkeys(data.pop("data", {}), _NOT_SHOWN)
    return data


def _yaml(rendered: Rendered) -> Iterator[str]:
    for subject, objects in rendered:
        for obj in objects:
            yield f"---\n# {subject.document.name} on {subject.runtime}\n"
            yield yamljson.dump(document(obj))


def _print_tables(subject: Subject, objects: list[Object], out: Console) -> None:
    out.print(f"[bold]{subject.document.name}[/] on {subject.runtime}", highlight=False, soft_wrap=True)
    for obj in objects:
        if not isinstance(obj, JobSet):
            continue
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
        for column in ("JOB", "PODS", "CONTAINER", "IMAGE", "ASKS FOR", "COMMAND"):
            if column == "COMMAND":
                table.add_column(column, ratio=1)
            else:
                table.add_column(column, no_wrap=True, justify="right" if column == "PODS" else "left")
        for job in obj.spec.replicated_jobs or ():
            _add_job(table, job)
        out.print(table)
    others = [f"{obj.gvk.kind} {obj.name}{_detail(obj)}" for obj in objects]
    text = f"Applies {', '.join(others) or 'nothing'}\n"
    out.print(text, highlight=False, markup=False, soft_wrap=True)


def _add_job(table: Table, job: ReplicatedJob) -> None:
    pods = (job.replicas or 1) * (job.template.spec.parallelism or 1)
    pod = job.template.spec.template.spec
    name, count = job.name, str(pods)
    for container in (*(pod.init_containers or ()), *(pod.containers or ())):
        asks = _asks(container.resources)
        called = "" if container.name == job.name else container.name
        table.add_row(name, count, called, _image(container), asks, _command(container))
        name = count = ""


def _command(container: Container) -> Text:
    words = [" ".join(word.split()) for word in (*(container.command or ()), *(container.args or ()))]
    text = " ".join(words)
    return Text(text or "-", no_wrap=True, overflow="ellipsis")


def _image(container: Container) -> str:
    """Return the image without its registry and folders, which the other outputs show."""
    return (container.image or "-").rpartition("/")[2]


def _asks(resources: ResourceRequirements | None) -> str:
    if resources is None:
        return "-"
    amounts = {**(resources.limits or {}), **(resources.requests or {})}
    return " ".join(f"{amount} {name.rpartition('/')[2]}" for name, amount in amounts.items()) or "-"


def _detail(obj: Object) -> str:
    data = obj.to_dict()
    members = (data.get("spec") or {}).get("minMember")
    return f" of {members} pods" if members is not None else ""
