# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Predicts whether an API server with Trainer's CRDs and webhooks would admit new objects. It needs no server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import pydantic_core
from controller_runtime.apis.admission.v1 import AdmissionResponse
from controller_runtime.client import Reader
from controller_runtime.machinery import GVK, JSON, NamespacedName
from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import Runtime, core, runtime_for

from trainerctl.offline import schema
from trainerctl.offline.filesclient import FilesClient
from trainerctl.offline.hints import with_quotes
from trainerctl.offline.inputfiles import DEFAULT_NAMESPACE, InputObject
from trainerctl.offline.podfindings import (
    Obstacle,
    PodFinding,
    obstacles_of,
    obstacles_of_runtime,
    pod_findings,
    pod_findings_of_runtime,
)
from trainerctl.offline.problem import Problem, parse, render
from trainerctl.offline.stored import (
    KINDS,
    Checked,
    Schemas,
    Webhooks,
    denial,
    not_served,
    served_instead,
    without_status,
)
from trainerctl.offline.trainjobs import fetch_runtime, hint_of_missing, runtime_of

_DEFAULTER: Final = "defaulter.trainjob.trainer.kubeflow.org"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The server's answer to the creation of one object. If ``code`` is 0, the object is admitted."""

    document: InputObject
    code: int = 0
    reason: str = ""
    message: str = ""
    """The ``message`` of the API server's ``Status``."""
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    findings: list[PodFinding] = field(default_factory=list)
    """The reasons why the server will refuse the Jobs of an admitted TrainJob, or of TrainJobs with this runtime."""
    refusals: dict[str, str] = field(default_factory=dict)
    """The server's texts about the Jobs that it refuses in a dry run, by their names."""
    obstacles: list[Obstacle] = field(default_factory=list)
    """The fields because of which no pod of an admitted object can start."""

    @property
    def is_valid(self) -> bool:
        """True if the object is admitted, and no reason is known why no pod of it will start."""
        return not self.code and not self.findings and not self.refusals and not self.obstacles

    def add_obstacles(self, obstacles: Iterable[Obstacle]) -> None:
        """Add obstacles, and remove the warnings that say the same."""
        for each in obstacles:
            self.obstacles.append(each)
            same = f"{render(each.path)}: {each.text}"
            self.warnings[:] = (warning for warning in self.warnings if warning != same)

    def add_findings(self, findings: Iterable[PodFinding]) -> None:
        """Add mistakes in pod templates, and remove the warnings that say the same."""
        self.findings.extend(findings)
        shown = {each.violation.sentence for each in self.findings}
        self.warnings[:] = (warning for warning in self.warnings if warning not in shown)

    def lines(self) -> list[str]:
        """Return human-readable lines: warnings, the text that kubectl prints, then a line for each invalid field."""
        lines = [str(self.document.error((), f"Warning: {warning}")) for warning in self.warnings]
        kind, name = self.document.data["kind"], (self.document.data.get("metadata") or {}).get("name") or ""
        if not self.code:
            refused = "its Jobs" if all(each.violation.job for each in self.findings) else "its JobSet"
            if self.document.gvk != TrainJob.gvk:
                refused = "the Jobs of its TrainJobs"
            verdict = "valid" if self.is_valid else f"admitted, but {refused} will be refused"
            if self.obstacles and not self.findings and not self.refusals:
                verdict = "admitted, but no pod will start"
            lines += [
                str(self.document.error((), f"Error from server: {text}")) for text in self.refusals.values()
            ]
            return [
                *lines,
                *map(str, self.obstacles),
                *map(str, self.findings),
                str(self.document.error((), verdict)),
            ]
        text = f'The {kind} "{name}" is invalid:'
        if self.reason != "Invalid":
            text = f"Error from server ({self.reason}): {self.message}"
        lines.append(str(self.document.error((), text)))
        for problem in self.problems:
            place = str(self.document.error(problem.path or (), "")).partition(": ")[0]
            lines.append(with_quotes(f"{place}: * {problem if problem.path else problem.text}"))
        return [*lines, *map(str, self.findings)]

    def to_dict(self) -> dict[str, JSON]:
        meta = self.document.data.get("metadata") or {}
        return {
            "file": self.document.source,
            "document": self.document.number,
            "kind": self.document.data["kind"],
            "namespace": meta.get("namespace") or "",
            "name": meta.get("name") or "",
            "valid": self.is_valid,
            "code": self.code or 200,
            "reason": self.reason,
            "message": self.message,
            "causes": [{"field": render(each.path or ()), "message": each.text} for each in self.problems],
            "warnings": self.warnings,
            **({"refusedJobs": self.refusals} if self.refusals else {}),
            **({"obstacles": [each.to_dict() for each in self.obstacles]} if self.obstacles else {}),
            **({"findings": [each.to_dict() for each in self.findings]} if self.findings else {}),
        }


class Validator:
    """Validates objects. Call :meth:`start` first.

    Runtimes and PriorityClasses that the input lacks are read from ``cluster``. Without it, the shipped runtimes are
    used.
    """

    def __init__(
        self,
        schemas: Mapping[GVK, schema.Schema],
        namespace: str = DEFAULT_NAMESPACE,
        cfg: Configuration | None = None,
        cluster: Reader | None = None,
    ) -> None:
        self._cluster = cluster
        self._origins: dict[tuple[str, NamespacedName], str] = {}
        self._cfg = cfg or defaulted()
        self._schemas = Schemas(schemas, namespace)
        self._client = FilesClient(())
        self._runtimes: Mapping[str, Runtime] = {}
        self._documents: list[InputObject] = []
        self._first: dict[tuple[GVK, str], InputObject] = {}
        """The first document of each kind, namespace and name."""
        self._webhooks: Webhooks | None = None

    async def start(self, found: Iterable[InputObject]) -> None:
        """Load the valid runtimes among ``found``, and the validators of the webhooks."""
        self._documents = list(found)
        for each in self._documents:
            if (each.data.get("metadata") or {}).get("name"):
                self._first.setdefault(_name_of(each), each)
        self._client = FilesClient(self._documents, self._cluster)
        taken, webhooks = set(), Webhooks({}, self._cfg)
        for data in (document.data for document in self._documents):
            kind = KINDS.get(GVK.parse(data["apiVersion"], data["kind"]))
            if kind is None or kind is TrainJob:
                continue
            checked = self._schemas.check(data)
            if checked.unknown or checked.undecodable or checked.problems:
                continue
            try:
                obj = kind.from_dict(without_status(checked.data))
            except pydantic_core.ValidationError:
                continue  # the object's own verdict has the reason
            response, _ = await webhooks.review(checked.data)
            if response.allowed and (kind, obj.key) not in taken:
                taken.add((kind, obj.key))
                self._client.add(obj)
        self._runtimes = await core.new(self._client, self._client, cfg=self._cfg)
        self._webhooks = Webhooks(self._runtimes, self._cfg)

    async def judge(self, document: InputObject) -> Verdict:
        """Return the server's answer if ``document`` is created with strict field validation."""
        gvk = document.gvk
        if (unserved := not_served(gvk)) is not None:
            return Verdict(document, 404, "NotFound", unserved, [Problem(None, served_instead(gvk))])
        verdict = await self._judge_served(document)
        verdict.warnings.extend(self._about_metadata(document))
        return verdict

    def _about_metadata(self, document: InputObject) -> Iterator[str]:
        """Yield warnings about metadata with which the object cannot be created, or replaces another one."""
        metadata = document.data.get("metadata") or {}
        if metadata.get("resourceVersion"):
            yield "metadata.resourceVersion: remove it to create the object; with it, an object can only be updated"
        first = self._first.get(_name_of(document), document)
        if first is not document:
            yield f"{first.source}, document {first.number} has the same kind and name"

    async def _judge_served(self, document: InputObject) -> Verdict:
        gvk = document.gvk
        checked = self._schemas.check(document.data)
        if checked.unknown or checked.undecodable:
            listed = ", ".join(f'unknown field "{render(path)}"' for path in checked.unknown)
            why = checked.undecodable or f"strict decoding error: {listed}"
            text = f'{gvk.kind} in version "{gvk.version}" cannot be handled as a {gvk.kind}: {why}'
            fields = [Problem(path, self._schemas.unknown_field(gvk, path)) for path in checked.unknown]
            verdict = Verdict(document, 400, "BadRequest", text, fields)
            if checked.undecodable is None:  # also report the problems that the server finds later
                others = await self._judge_known(document, checked)
                verdict.problems.extend(
                    others.problems or [Problem(None, others.message)] * bool(others.code)
                )
                verdict.warnings.extend(others.warnings)
                verdict.findings.extend(others.findings)
            return verdict
        return await self._judge_known(document, checked)

    async def _judge_known(self, document: InputObject, checked: Checked) -> Verdict:
        """Return the server's answer if the object has no unknown fields."""
        gvk = document.gvk
        if self._webhooks is None:
            raise RuntimeError("the validator has not been started")
        response, changed = await self._webhooks.mutate(checked.data)
        warnings = response.warnings or []
        if not response.allowed:
            return _refused(document, response, denial(_DEFAULTER, response), warnings)
        if changed is not checked.data:
            checked = self._schemas.check(changed)
        if problems := checked.problems:
            listed = ", ".join(map(str, problems))
            name = checked.data["metadata"].get("name") or ""
            body = f"[{listed}]" if len(problems) > 1 else listed
            text = f'{gvk.kind}.{gvk.group} "{name}" is invalid: {body}'
            return Verdict(document, 422, "Invalid", text, problems, warnings)
        self._client.notes.clear()
        if gvk == TrainJob.gvk:
            with suppress(pydantic_core.ValidationError):  # the answer names the field
                train_job = TrainJob.from_dict(without_status(checked.data))
                await fetch_runtime(self._client, self._cluster, train_job, self._origins)
        response, text = await self._webhooks.review(checked.data)
        warnings += [*(response.warnings or []), *self._client.notes]
        if not response.allowed:
            if gvk == TrainJob.gvk and (hint := await self._hint(checked.data)):
                warnings.append(hint)
            return _refused(document, response, text, warnings)
        findings: list[PodFinding] = []
        if gvk == TrainJob.gvk:
            train_job = TrainJob.from_dict(without_status(checked.data))
            runtime = runtime_for(self._runtimes, train_job.spec.runtime_ref)
            findings = await pod_findings(runtime, train_job, document, self._documents)
            stored = await runtime_of(self._client, train_job)
            obstacles = obstacles_of(train_job, stored, document, self._documents)
        else:
            kind = TrainingRuntime if gvk == TrainingRuntime.gvk else ClusterTrainingRuntime
            stored = kind.from_dict(without_status(checked.data))
            findings = pod_findings_of_runtime(stored, document)
            obstacles = obstacles_of_runtime(stored, document)
        verdict = Verdict(document, warnings=warnings)
        verdict.add_findings(findings)
        verdict.add_obstacles(obstacles)
        return verdict

    async def _hint(self, data: dict[str, JSON]) -> str:
        """Return a text about the probable cause if the runtime of a TrainJob is missing."""
        try:
            train_job = TrainJob.from_dict(without_status(data))
        except pydantic_core.ValidationError:
            return ""  # the answer names the field
        return await hint_of_missing(self._client, train_job, self._documents, cluster=self._cluster)


def _name_of(document: InputObject) -> tuple[GVK, str]:
    return document.gvk, document.name


def _refused(document: InputObject, response: AdmissionResponse, text: str, warnings: list[str]) -> Verdict:
    status = response.status
    code, reason = (status.code, status.reason) if status is not None else (403, "Forbidden")
    details = status.details if status is not None else None
    causes = (details.causes if details is not None else None) or ()
    problems = [Problem(parse(each.field or ""), each.message or "") for each in causes]
    return Verdict(document, code or 403, reason or "Forbidden", text, problems, warnings)
