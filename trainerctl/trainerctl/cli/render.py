# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl render``: shows the objects that the manager would create for TrainJobs. It needs no cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from controller_runtime.machinery.printable import printable_line
from pkg.apis.jobset.v1alpha2 import JobSet

from trainerctl.cli import live, streams
from trainerctl.cli.terminal import Console
from trainerctl.offline import inputfiles, rendering, trainjobs
from trainerctl.offline.rendering import Rendered
from trainerctl.offline.trainjobs import Offline


async def render_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the objects of the TrainJobs; return 1 if a TrainJob or a runtime is refused."""
    given = await load(arguments)
    everything = [await rendering.render(given, subject) for subject in given.subjects]
    for each in everything:
        if each.refusal is not None:
            streams.say_error(each.refusal)
        for finding in (*each.obstacles, *each.findings):
            streams.say_error(f"warning: {finding}")
    for note in given.client.notes:
        streams.say_note(note)
    rendered = [each for each in everything if each.refusal is None]
    if arguments.output == "table":
        for each in rendered:
            print_tables(each, out)
    elif arguments.output == "json":
        items = [rendering.manifest(obj) for each in rendered for obj in each.objects]
        out.write_json({"apiVersion": "v1", "kind": "List", "items": items})
    else:
        _write_yaml(rendered, out)
    return 1 if given.refused_runtimes or len(rendered) < len(everything) else 0


def _write_yaml(rendered: Sequence[Rendered], out: Console) -> None:
    for each in rendered:
        title = f"{printable_line(each.subject.document.name)} on {printable_line(each.subject.runtime)}"
        for obj in each.objects:
            out.file.write(f"---\n# {title}\n")
            out.write_yaml(rendering.manifest(obj))


def print_tables(rendered: Rendered, out: Console) -> None:
    """Print the containers of the JobSet, and the names of all objects."""
    out.say((rendered.subject.document.name, "bold"), f" on {rendered.subject.runtime}")
    for obj in rendered.objects:
        if isinstance(obj, JobSet):
            out.table(rendering.COLUMNS, rendering.containers(obj), right=("PODS",))
    out.say(f"Applies {', '.join(map(rendering.summary, rendered.objects)) or 'nothing'}")
    out.say()


async def load(arguments: argparse.Namespace) -> Offline:
    """Return the TrainJobs of the files. Print a warning for each field that a server would drop, and refused runtimes.

    Raises:
        InputError: a file is not valid, or contains no TrainJob.
    """
    given = await _load(arguments)
    for warning in given.warnings:
        streams.say_error(f"warning: {warning}")
    for refusal in given.refused_runtimes.values():
        streams.say_error(refusal)
    return given


async def _load(arguments: argparse.Namespace) -> Offline:
    found = await inputfiles.load(arguments.files, streams.say_note)
    cfg = trainjobs.configuration(arguments.compatibility_version, arguments.feature_gates)
    if arguments.kubeconfig is None and arguments.context is None:
        namespace = arguments.namespace or inputfiles.DEFAULT_NAMESPACE
        return await trainjobs.prepare(found, namespace=namespace, cfg=cfg)
    async with live.connect(arguments) as cluster:
        return await trainjobs.prepare(found, namespace=cluster.namespace, cluster=cluster.client, cfg=cfg)
