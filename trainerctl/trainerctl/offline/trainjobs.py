# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the manager's pipeline for TrainJobs in files. It reads files instead of a cluster.

The runtime of a TrainJob is first looked up in the files. If it is not there, it is looked up in the cluster or, if no
cluster is given, among the shipped runtimes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.client import Reader
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import GVK, NamespacedName, Object, conditions, yaml
from controller_runtime.machinery.errors import NotFoundError, StatusError
from controller_runtime.machinery.patch import StrategicMergeError
from controller_runtime.rest import RestError
from pkg import shipped
from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.apis.trainer.v1alpha1 import (
    TRAIN_JOB_COMPLETE,
    TRAIN_JOB_FAILED,
    ClusterTrainingRuntime,
    TrainingRuntime,
    TrainJob,
)
from pkg.runtime import Runtime, UnsupportedRuntimeError, core, runtime_for
from pkg.runtime.framework import PluginError
from pkg.util.trainjob import ChildConflictError, is_ours

from trainerctl.offline import inputfiles
from trainerctl.offline.filesclient import FilesClient
from trainerctl.offline.hints import with_quotes
from trainerctl.offline.inputfiles import DEFAULT_NAMESPACE, InputObject
from trainerctl.offline.stored import KINDS, Schemas, Webhooks, not_served, schemas, served_instead

UID: Final = "00000000-0000-0000-0000-000000000000"
"""Used in place of the uid that a server would set."""

_RUNTIME_KINDS: Final[dict[str, type[TrainingRuntime | ClusterTrainingRuntime]]] = {
    kind.gvk.kind: kind for kind in (TrainingRuntime, ClusterTrainingRuntime)
}


_REFUSALS: Final = (
    StatusError,
    RestError,
    StrategicMergeError,
    UnsupportedRuntimeError,
    PluginError,
    ChildConflictError,
)


class RefusedError(Exception):
    """The manager would not create objects for a TrainJob. The text names the TrainJob and the reason."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A TrainJob from the input, in the form in which a server would store it."""

    train_job: TrainJob
    document: InputObject
    runtime: str
    """The runtime and its origin, such as ``ClusterTrainingRuntime torch-distributed (shipped)``."""


@dataclass(slots=True)
class Offline:
    """The TrainJobs of the input, and the runtimes that make their objects, by kind."""

    client: FilesClient
    runtimes: dict[str, Runtime]
    subjects: list[Subject]
    warnings: list[str] = field(default_factory=list)
    has_cluster: bool = False
    hints: dict[NamespacedName, str] = field(default_factory=dict)
    """For each TrainJob whose runtime is missing, a text about the probable cause."""
    cfg: Configuration = field(default_factory=defaulted)
    documents: Collection[InputObject] = ()
    """All objects of the input."""
    refused_runtimes: dict[tuple[str, NamespacedName], str] = field(default_factory=dict)
    """For each runtime of the input that the webhook refuses, by kind and key: its place and the webhook's text."""


async def prepare(
    found: Collection[InputObject],
    *,
    namespace: str = DEFAULT_NAMESPACE,
    cluster: Reader | None = None,
    cfg: Configuration | None = None,
) -> Offline:
    """Return the TrainJobs among ``found``, their runtimes, and the pipeline as ``cfg`` configures it.

    Raises:
        InputError: a TrainJob or runtime would be refused or is a duplicate, or the input contains no TrainJob.
    """
    client, checks = FilesClient(found, cluster), Schemas(schemas(), namespace)
    cfg = cfg or defaulted()
    runtimes = await core.new(client, client, cfg=cfg, store=client)
    offline = Offline(client, runtimes, [], has_cluster=cluster is not None, cfg=cfg, documents=found)
    train_jobs: list[tuple[InputObject, TrainJob]] = []
    webhooks = Webhooks({}, cfg)
    for document, obj in _decoded(found, KINDS, checks, offline.warnings):
        if isinstance(obj, TrainJob):
            train_jobs.append((document, obj))
        else:
            client.add(obj)
            response, text = await webhooks.review(obj.to_dict())
            if not response.allowed:
                offline.refused_runtimes[obj.gvk.kind, obj.key] = str(document.error((), text))
    if not train_jobs:
        raise inputfiles.InputError(f"the input contains no TrainJob{_listed(found)}")
    origins: dict[tuple[str, NamespacedName], str] = {}
    for document, train_job in train_jobs:
        if (why := _why_ignored(train_job)) is not None:
            offline.warnings.append(f"TrainJob {train_job.key}: {why}; the manager ignores it")
        runtime = await fetch_runtime(client, cluster, train_job, origins)
        offline.hints[train_job.key] = await hint_of_missing(client, train_job, found, cluster=cluster)
        offline.subjects.append(Subject(train_job, document, runtime))
    return offline


def configuration(version: str, feature_gates: Mapping[str, bool]) -> Configuration:
    """Return the manager's Configuration with a compatibility version and feature gates."""
    cfg = defaulted(version)
    cfg.feature_gates = {**(cfg.feature_gates or {}), **feature_gates}
    return cfg


def runtimes(
    found: Collection[InputObject], namespace: str = DEFAULT_NAMESPACE
) -> tuple[list[InputObject], list[str]]:
    """Return the runtimes among ``found``, and a warning for each field that a server would drop.

    Raises:
        InputError: a runtime has no name, is a duplicate, or would be refused.
    """
    checks, warnings = Schemas(schemas(), namespace), list[str]()
    kinds = {kind.gvk: kind for kind in _RUNTIME_KINDS.values()}
    for document in found:
        if document.gvk in kinds and not (document.data.get("metadata") or {}).get("name"):
            raise document.error(("metadata", "name"), "a name is expected")
    return [document for document, _ in _decoded(found, kinds, checks, warnings)], warnings


async def objects(offline: Offline, train_job: TrainJob) -> list[Object]:
    """Return the objects that the manager would create for a TrainJob.

    If it would store a snapshot of the runtime, the snapshot comes first.

    Raises:
        RefusedError: the manager would not apply any objects. It would report the reason in an event or condition.
    """
    try:
        made = await runtime_for(offline.runtimes, train_job.spec.runtime_ref).new_objects(train_job)
        snapshots = await offline.client.list(ConfigMap, namespace=train_job.namespace)
        name = core.snapshot_name(train_job)
        return [*(_as_created(each) for each in snapshots if each.name == name), *made]
    except core.RuntimeNotFoundError as error:
        hint = offline.hints.get(train_job.key)
        if not hint and not offline.has_cluster:
            hint = f"the shipped runtimes are {', '.join(sorted(_shipped()))}"
        raise RefusedError(f"TrainJob {train_job.key}: {error}{f'; {hint}' if hint else ''}") from error
    except _REFUSALS as error:
        raise RefusedError(f"TrainJob {train_job.key}: {error}") from error


async def hint_of_missing(
    client: FakeClient, train_job: TrainJob, found: Iterable[InputObject], *, cluster: Reader | None = None
) -> str:
    """If ``client`` lacks the runtime of a TrainJob, return a text about the probable cause.

    The runtime is among ``found`` but invalid, or a runtime of the other kind has its name. Without ``cluster``, look
    also among the shipped runtimes. Otherwise the text is empty.
    """
    ref = train_job.spec.runtime_ref
    if ref.kind not in _RUNTIME_KINDS:
        return ""
    (other,) = (kind for name, kind in _RUNTIME_KINDS.items() if name != ref.kind)
    with suppress(NotFoundError):
        await client.get(_RUNTIME_KINDS[ref.kind], _key_of_runtime(_RUNTIME_KINDS[ref.kind], train_job))
        return ""
    for each in found:
        if each.gvk.kind == ref.kind and (each.data.get("metadata") or {}).get("name") == ref.name:
            place = f"{each.source}, document {each.number}"
            return f"the {ref.kind} {ref.name} of {place} is refused, or in another namespace"
    exists = cluster is None and other is ClusterTrainingRuntime and ref.name in _shipped()
    for reader in (client, cluster):
        if not exists and reader is not None:
            with suppress(StatusError, RestError):
                await reader.get(other, _key_of_runtime(other, train_job))
                exists = True
    kind = other.gvk.kind
    return f"there is a {kind} {ref.name}: to use it, set spec.runtimeRef.kind to {kind}" if exists else ""


def _key_of_runtime(kind: type[Object], train_job: TrainJob) -> NamespacedName:
    namespace = "" if kind is ClusterTrainingRuntime else train_job.namespace
    return NamespacedName(namespace, train_job.spec.runtime_ref.name)


def _as_created(snapshot: ConfigMap) -> ConfigMap:
    """Return the snapshot without the metadata that a server sets, also in the runtime that it contains."""
    runtime = yaml.load_map((snapshot.data or {})["runtime"])
    for key in ("resourceVersion", "uid", "creationTimestamp"):
        runtime["metadata"].pop(key, None)
    meta = snapshot.metadata
    kept = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        labels=meta.labels,
        annotations=meta.annotations,
        owner_references=meta.owner_references,
    )
    data = {**(snapshot.data or {}), "runtime": yaml.dump(runtime, sort_keys=True)}
    return ConfigMap(metadata=kept, data=data, immutable=snapshot.immutable)


async def denial(offline: Offline, train_job: TrainJob) -> tuple[str | None, list[str]]:
    """Return the reason why the webhook denies a TrainJob or its runtime, or None, and the warnings.

    :func:`objects` must have made the objects of the TrainJob before.
    """
    response, text = await Webhooks(offline.runtimes, offline.cfg).review(train_job.to_dict())
    warnings, ref = response.warnings or [], train_job.spec.runtime_ref
    key = _key_of_runtime(_RUNTIME_KINDS[ref.kind or ""], train_job)
    if (ref.kind or "", key) in offline.refused_runtimes:
        return f"TrainJob {train_job.key}: its {ref.kind} {ref.name} is refused", warnings
    return None if response.allowed else f"TrainJob {train_job.key}: {text}", warnings


def _decoded(
    found: Iterable[InputObject], kinds: Mapping[GVK, type[Object]], checks: Schemas, warnings: list[str]
) -> Iterator[tuple[InputObject, Object]]:
    """Yield the objects of ``kinds`` as a server would store them, and append a warning for each dropped field.

    Raises:
        InputError: an object of Trainer is in an unknown version, is a duplicate, or would be refused.
    """
    seen: dict[tuple[GVK, NamespacedName], InputObject] = {}
    for document in found:
        if (unserved := not_served(document.gvk)) is not None:
            raise document.error((), f"{unserved}; {served_instead(document.gvk)}")
        if (kind := kinds.get(document.gvk)) is None:
            continue
        obj = _decode(document, kind, checks, warnings)
        first = seen.setdefault((kind.gvk, obj.key), document)
        if first is not document and not (document.data.get("metadata") or {}).get("name"):
            obj.metadata.name = f"{obj.name[:-5]}{len(seen):05}"  # the server generates another name
            seen[kind.gvk, obj.key] = document
        elif first is not document:
            raise document.error((), f"duplicate of {first.source}, document {first.number}")
        yield document, obj


def _decode(document: InputObject, kind: type[Object], checks: Schemas, warnings: list[str]) -> Object:
    checked = checks.check(document.data)
    if checked.undecodable is not None:
        raise document.error(("metadata",), checked.undecodable)
    if checked.problems:
        lines = [str(document.error(each.path or (), with_quotes(each.text))) for each in checked.problems]
        raise inputfiles.InputError("\n".join(lines))
    for path in checked.unknown:
        text = f"{checks.unknown_field(document.gvk, path)} (a server drops it)"
        warnings.append(str(document.error(path, text)))
    stored = dataclasses.replace(document, data=checked.data)
    obj = stored.decode(kind)
    obj.metadata.uid = obj.metadata.uid or UID
    return obj


def _why_ignored(train_job: TrainJob) -> str | None:
    """Return the reason why the manager would ignore this TrainJob, or None."""
    if not is_ours(train_job):
        return f"spec.managedBy names {train_job.spec.managed_by}"
    if train_job.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    for verdict in (TRAIN_JOB_COMPLETE, TRAIN_JOB_FAILED):
        if conditions.is_true(train_job.status.conditions, verdict):
            return f"it is {verdict}"
    return None


async def fetch_runtime(
    client: FakeClient,
    cluster: Reader | None,
    train_job: TrainJob,
    origins: dict[tuple[str, NamespacedName], str],
) -> str:
    """Add the runtime of a TrainJob to ``client`` if it is not in the files. Return its kind, name and origin."""
    ref = train_job.spec.runtime_ref
    named = f"{ref.kind} {ref.name}"
    kind = _RUNTIME_KINDS.get(ref.kind or "")
    if kind is None or ref.api_group != kind.gvk.group:
        return named
    key = _key_of_runtime(kind, train_job)
    place = (kind.gvk.kind, key)
    if place not in origins:
        origins[place] = ""
        with suppress(NotFoundError):
            await client.get(kind, key)
            return named
        if cluster is not None:
            with suppress(NotFoundError):
                client.add(await cluster.get(kind, key))
                origins[place] = " (from the cluster)"
        elif kind is ClusterTrainingRuntime and ref.name in _shipped():
            client.add(_shipped()[ref.name])
            origins[place] = " (shipped)"
    return f"{named}{origins[place]}"


async def runtime_of(client: Reader, train_job: TrainJob) -> TrainingRuntime | ClusterTrainingRuntime:
    """Return the runtime of an admitted TrainJob.

    Raises:
        NotFoundError: ``client`` has no such runtime.
    """
    kind = _RUNTIME_KINDS[train_job.spec.runtime_ref.kind or ""]
    return await client.get(kind, _key_of_runtime(kind, train_job))


def _listed(found: Iterable[InputObject]) -> str:
    kinds = sorted({document.gvk.kind for document in found})
    return f", only {', '.join(kinds)}" if kinds else ""


@cache
def _shipped() -> dict[str, ClusterTrainingRuntime]:
    found, checks = {}, Schemas(schemas())
    for data in (*shipped.manifests("runtimes"), *shipped.manifests("runtimes/data-cache")):
        if data["kind"] == ClusterTrainingRuntime.gvk.kind:
            runtime = ClusterTrainingRuntime.from_dict(checks.stored(data))
            found[runtime.name] = runtime
    return found
