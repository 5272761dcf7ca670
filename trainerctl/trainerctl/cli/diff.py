# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl diff``: shows which TrainJobs in the cluster a changed runtime affects, and how their objects change."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import Reader
from controller_runtime.machinery import JSON, metadata_only, unstructured
from controller_runtime.machinery.errors import NotFoundError
from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime import core
from pkg.why import LiveObject, Reference, kinds, runtime_of
from pkg.why.phase import Phase, phase

from trainerctl.cli import live, streams
from trainerctl.cli.terminal import Console, yaml_text
from trainerctl.offline import inputfiles, rendering, trainjobs
from trainerctl.offline.inputfiles import InputObject

_STYLES: Final = {"+": "green", "-": "red", "@": "cyan"}


class Effect(StrEnum):
    """Whether and when a change of the runtime affects a TrainJob."""

    NONE = "none: it has ended"
    LATER = "when it is suspended and resumed"
    NOW = "at once: it is suspended, or has no objects yet"
    REFUSED = "refused with the new runtime"
    KEPT = "none: it keeps the runtime that it started with"
    SAME = "none: its objects stay the same"


_UNCONCERNED: Final = (Effect.NONE, Effect.SAME, Effect.KEPT)


class Change(NamedTuple):
    """A TrainJob, and the changes of its objects with the new runtime."""

    job: LiveObject
    effect: Effect
    lines: tuple[str, ...] = ()


async def diff_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the effects. Return 1 if the objects of a TrainJob would change, or if a TrainJob would be refused.

    Raises:
        InputError: a file cannot be read, the files contain no runtime, or a runtime would be refused.
        StatusError: the runtimes or TrainJobs of the cluster cannot be read.
    """
    runtimes = await _load(arguments)
    changes: list[Change] = []
    cfg = trainjobs.configuration(arguments.compatibility_version, arguments.feature_gates)
    async with live.connect(arguments) as cluster:
        for each in runtimes:
            changes += await _of_runtime(cluster, each, cfg)
    print_changes(changes, out)
    return 1 if any(each.effect not in _UNCONCERNED for each in changes) else 0


async def _load(arguments: argparse.Namespace) -> list[InputObject]:
    """Return the runtimes of the files, and print a warning for each field that a server would drop."""
    found = await inputfiles.load(arguments.files, streams.say_note)
    runtimes, warnings = trainjobs.runtimes(found, arguments.namespace or inputfiles.DEFAULT_NAMESPACE)
    if not runtimes:
        raise inputfiles.InputError("the input contains no TrainingRuntime or ClusterTrainingRuntime")
    for warning in warnings:
        streams.say_error(f"warning: {warning}")
    return runtimes


async def _of_runtime(cluster: live.Connection, document: InputObject, cfg: Configuration) -> list[Change]:
    kind, name = document.data["kind"], document.data["metadata"]["name"]
    namespace = ""
    if kind == "TrainingRuntime":
        namespace = document.data["metadata"].get("namespace") or cluster.namespace
        document.data["metadata"]["namespace"] = namespace
    wanted = Reference(f"{kind}.trainer.kubeflow.org", namespace, name)
    jobs = [
        each for each in await cluster.all(kinds.TRAIN_JOB, namespace=namespace) if runtime_of(each) == wanted
    ]
    try:
        current = await cluster.client.get(unstructured(kinds.VERSIONS[wanted.kind][0]), (namespace, name))
    except NotFoundError:
        streams.say_error(f"{wanted} does not exist in the cluster; it is new")
        current = None
    old = None if current is None else InputObject(_desired(current.to_dict()), "cluster", 1)
    return [
        Change(job, Effect.KEPT)
        if await _has_snapshot(cluster, job)
        else await change_of(job, old, document, cfg, cluster=cluster.client)
        for job in jobs
    ]


async def _has_snapshot(cluster: live.Connection, job: LiveObject) -> bool:
    """Return True if the TrainJob is active and Trainer v2.2 or later has stored a copy of its runtime."""
    if phase(job).ended:
        return False
    name = core.snapshot_name(TrainJob(metadata=ObjectMeta(namespace=job.namespace, name=job.name)))
    kind = metadata_only(kinds.VERSIONS["ConfigMap"][0])
    try:
        await cluster.client.get(kind, (job.namespace, name))
    except NotFoundError:
        return False
    return True


async def change_of(
    job: LiveObject,
    old: InputObject | None,
    new: InputObject,
    cfg: Configuration,
    *,
    cluster: Reader | None = None,
) -> Change:
    """Return how a TrainJob changes if the runtime ``new`` replaces ``old``. If ``old`` is None, ``new`` is added."""
    now = phase(job)
    if now.ended:
        return Change(job, Effect.NONE)
    before = await _rendered(job, old, cfg, cluster) if old is not None else ""
    after = await _rendered(job, new, cfg, cluster)
    if after.startswith("refused: "):
        return Change(job, Effect.REFUSED, (after.removeprefix("refused: "),))
    if before == after:
        return Change(job, Effect.SAME)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "now", "then", lineterm="")
    built = job.maps("status", "jobsStatus")
    effect = Effect.LATER if built and now is not Phase.SUSPENDED else Effect.NOW
    return Change(job, effect, tuple(lines))


async def _rendered(job: LiveObject, runtime: InputObject, cfg: Configuration, cluster: Reader | None) -> str:
    """Return the objects of a TrainJob as YAML. If the TrainJob is refused, return ``refused:`` and the reason."""
    document = InputObject(_desired(dict(job.data)), "cluster", 1)
    try:
        given = await trainjobs.prepare(
            [runtime, document], namespace=job.namespace, cluster=cluster, cfg=cfg
        )
        made = await rendering.render(given, given.subjects[0])
    except inputfiles.InputError as error:
        return f"refused: {error}"
    if made.refusal is not None:
        return f"refused: {made.refusal}"
    return "---\n".join(yaml_text(rendering.manifest(each)) for each in made.objects)


def _desired(data: dict[str, JSON]) -> dict[str, JSON]:
    """Return an object of the cluster without the fields that the server sets."""
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {key: value for key, value in data["metadata"].items() if key in kept}
    return {**{key: value for key, value in data.items() if key != "status"}, "metadata": metadata}


def print_changes(changes: Sequence[Change], out: Console) -> None:
    """Print a table of the effects, then each difference together with the TrainJobs to which it applies."""
    if not changes:
        out.say("no TrainJob refers to the runtime")
        return
    rows = [(f"{each.job.namespace}/{each.job.name}", phase(each.job), each.effect) for each in changes]
    out.table(("TRAINJOB", "STATE", "EFFECT"), sorted(rows))
    for jobs, lines in _grouped(changes):
        out.say()
        out.say((", ".join(jobs), "bold"))
        for line in lines:
            out.say((line, _STYLES.get(line[:1], "")))


def _grouped(changes: Sequence[Change]) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Yield each difference with the TrainJobs to which it applies: they have the same changed lines."""
    groups: dict[tuple[str, ...], list[Change]] = {}
    for each in changes:
        if each.lines:
            refused = each.effect is Effect.REFUSED
            key = tuple(line.replace(each.job.name, "") for line in each.lines if refused or line[:1] in "+-")
            groups.setdefault(key, []).append(each)
    for group in groups.values():
        yield [f"{each.job.namespace}/{each.job.name}" for each in group], group[0].lines
