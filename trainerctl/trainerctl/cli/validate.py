# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl validate``: checks whether an API server with Trainer's CRDs and webhooks would admit new objects.

The command predicts the answers. It uses the schemas and rules of the shipped CRDs, and the webhooks' validators. It
looks for the runtime of a TrainJob in the files, then in the cluster of a given kubeconfig or, without one, in the
shipped runtimes. With ``--server``, it asks the API server of a kubeconfig instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from controller_runtime.client import LiveClient, Reader
from controller_runtime.machinery import unstructured
from controller_runtime.machinery.errors import AlreadyExistsError, NotFoundError, StatusError
from controller_runtime.rest import NoKindMatchError, Request, Response, RoundTripper, warnings_in
from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import core
from pkg.why import LiveObject, reading

from trainerctl.cli import live, streams
from trainerctl.cli.terminal import Console
from trainerctl.offline import inputfiles, schema, stored, trainjobs
from trainerctl.offline.inputfiles import InputObject
from trainerctl.offline.podfindings import (
    Obstacle,
    obstacles_of,
    obstacles_of_runtime,
    pod_findings_of_runtime,
)
from trainerctl.offline.problem import Problem, parse, render
from trainerctl.offline.verdict import Validator, Verdict


async def validate_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print a verdict for each of Trainer's objects.

    Return 2 if a file or a document cannot be read, and 1 if an object, or the Jobs of a TrainJob, will be refused.

    Raises:
        InputError: the files contain no object of Trainer's kinds.
    """
    read = await inputfiles.gather(arguments.files)
    for note in read.notes:
        streams.say_note(note)
    for error in read.errors:
        streams.say_error(str(error))
    found = read.objects
    if not found and read.errors:
        return inputfiles.BAD_INPUT
    if not found:
        raise inputfiles.nothing_in(arguments.files)
    ours = [document for document in found if document.gvk in stored.KINDS or stored.not_served(document.gvk)]
    for document in found:
        if document not in ours:
            hint = f"; give the output of `kubectl kustomize {Path(document.source).parent}`"
            text = f"not validated: not a Trainer kind{hint if document.gvk.kind == 'Kustomization' else ''}"
            err.say(str(document.error((), text)))
    if not ours:
        raise inputfiles.InputError(
            "the input contains no TrainJob, TrainingRuntime or ClusterTrainingRuntime"
        )
    verdicts = await (_ask(arguments, ours, found) if arguments.server else _predict(arguments, ours, found))
    if arguments.output == "json":
        out.write_json([verdict.to_dict() for verdict in verdicts])
    else:
        for verdict in verdicts:
            for line in verdict.lines():
                out.say(line)
    if read.errors:
        return inputfiles.BAD_INPUT
    return 0 if all(verdict.is_valid for verdict in verdicts) else 1


async def _predict(
    arguments: argparse.Namespace, documents: Sequence[InputObject], found: Sequence[InputObject]
) -> list[Verdict]:
    async def judged(namespace: str, cluster: Reader | None = None) -> list[Verdict]:
        validator = Validator(stored.schemas(), namespace, _configuration(arguments), cluster)
        await validator.start(found)
        return [await validator.judge(document) for document in documents]

    if arguments.kubeconfig is None and arguments.context is None:
        return await judged(arguments.namespace or inputfiles.DEFAULT_NAMESPACE)
    async with live.connect(arguments) as connection:
        return await judged(connection.namespace, connection.client)


def _configuration(arguments: argparse.Namespace) -> Configuration:
    return trainjobs.configuration(arguments.compatibility_version, arguments.feature_gates)


async def _ask(
    arguments: argparse.Namespace, documents: Sequence[InputObject], found: Sequence[InputObject]
) -> list[Verdict]:
    """Return the API server's answers to dry runs of the objects, and of the Jobs of the admitted TrainJobs.

    Raises:
        RestError: the API server cannot be reached.
    """
    async with live.connect(arguments) as cluster:
        verdicts = [await _answer(cluster, document) for document in documents]
        for verdict in verdicts:
            if verdict.code:
                continue
            if verdict.document.gvk == TrainJob.gvk:
                await _try_jobs(arguments, cluster, verdict, found)
            elif (kind := stored.KINDS.get(verdict.document.gvk)) is not None:
                obj = verdict.document.decode(kind)
                if isinstance(obj, TrainingRuntime | ClusterTrainingRuntime):
                    verdict.add_obstacles(obstacles_of_runtime(obj, verdict.document))
                    verdict.add_findings(pod_findings_of_runtime(obj, verdict.document))
        return verdicts


async def _try_jobs(
    arguments: argparse.Namespace,
    cluster: live.Connection,
    verdict: Verdict,
    found: Sequence[InputObject],
) -> None:
    """Try to create the Jobs of a TrainJob in a dry run, with the user's own rights, and add the refusals."""
    document = verdict.document
    others = [each for each in found if each.gvk != TrainJob.gvk]
    try:
        given = await trainjobs.prepare(
            [*others, document],
            namespace=cluster.namespace,
            cluster=cluster.client,
            cfg=_configuration(arguments),
        )
        train_job = given.subjects[0].train_job
        with suppress(NotFoundError):  # the next step reports it
            runtime = await trainjobs.runtime_of(given.client, train_job)
            verdict.add_obstacles(obstacles_of(train_job, runtime, document, others))
        made = await trainjobs.objects(given, train_job)
    except trainjobs.RefusedError as error:
        if isinstance(error.__cause__, core.RuntimeNotFoundError):
            verdict.warnings.append(f"the Jobs were not tried in a dry run: {error}")
        elif not verdict.obstacles:
            text = f"the manager cannot create the JobSet: {error.__cause__}"
            verdict.add_obstacles([Obstacle(document, (), text)])
        return
    except (inputfiles.InputError, StatusError) as error:
        verdict.warnings.append(f"the Jobs were not tried in a dry run: {error}")
        return
    job_sets = [LiveObject(each.to_dict()) for each in made if each.gvk == JobSet.gvk]
    refused, unknown = await reading.dry_run(cluster.client, job_sets)
    verdict.refusals.update(refused)
    if unknown:
        verdict.warnings.append(f"the Jobs were not tried in a dry run: {unknown}")


async def _answer(cluster: live.Connection, document: InputObject) -> Verdict:
    """Try to create the object in a dry run. If an object with this name exists, try to apply it. Return the answer."""
    collector = _WarningCollector(cluster.client.transport)
    client = LiveClient(collector, cluster.client.mapper, field_validation="Strict")
    metadata = {"namespace": cluster.namespace, **(document.data.get("metadata") or {})}
    obj = replace(document, data={**document.data, "metadata": metadata}).decode(unstructured(document.gvk))
    try:
        try:
            await client.create(obj, dry_run=True)
        except AlreadyExistsError:
            await client.apply(obj, field_owner=live.FIELD_OWNER, force=True, dry_run=True)
    except NoKindMatchError as error:
        return Verdict(document, 404, "NotFound", str(error))
    except StatusError as error:
        problems = [
            Problem(parse(each.get("field") or ""), each.get("message") or "") for each in error.causes
        ]
        if document.gvk in stored.KINDS:  # the server names unknown fields only in its message
            checks = stored.Schemas(stored.schemas())
            problems += [
                Problem(path, checks.unknown_field(document.gvk, path))
                for path in schema.unknown(stored.schemas()[document.gvk], document.data)
                if f'unknown field "{render(path)}"' in error.message
            ]
        return Verdict(document, error.code, error.reason, error.message, problems, collector.warnings)
    return Verdict(document, warnings=collector.warnings)


class _WarningCollector:
    """A round tripper that collects the warnings of responses."""

    def __init__(self, inner: RoundTripper) -> None:
        self._inner = inner
        self.warnings: list[str] = []

    async def send(self, request: Request) -> Response:
        response = await self._inner.send(request)
        self.warnings += warnings_in(response.headers.get("Warning", ""))
        return response
