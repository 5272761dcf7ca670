# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl validate``: what an API server with our CRDs and webhooks would answer to new objects, without one.

Schema and rules are the shipped CRDs'; the webhooks' verdict comes from the validators themselves. A TrainJob's runtime
is looked for in the files, then among the shipped ones.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pkg import webhooks
from pkg.apis.admission.v1 import AdmissionRequest, AdmissionResponse
from pkg.apis.machinery.gvk import GVK
from pkg.apis.machinery.object import Object
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.cli import documents, resources, structural
from pkg.cli.cel import Evaluator
from pkg.cli.documents import Document
from pkg.cli.structural import Problem
from pkg.cli.terminal import Console
from pkg.ctrl.client import FakeClient
from pkg.ctrl.webhook import ValidatorHandler
from pkg.ctrl.webhook.admission import BadRequestError, errored
from pkg.runtime import core

DEFAULT_NAMESPACE: Final = "default"
_KINDS: Final[dict[GVK, type[Object]]] = {
    kind.gvk: kind for kind in (TrainJob, TrainingRuntime, ClusterTrainingRuntime)
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said to one object; no ``code`` is a yes."""

    document: Document
    code: int = 0
    reason: str = ""
    message: str = ""
    """As the API server's ``Status`` has it."""
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def told(self) -> list[str]:
        """Return the lines for a person: what kubectl says, then every field with its place."""
        lines = [str(self.document.error((), f"Warning: {warning}")) for warning in self.warnings]
        kind, name = self.document.data["kind"], (self.document.data.get("metadata") or {}).get("name") or ""
        if not self.code:
            return [*lines, str(self.document.error((), "valid"))]
        told = f'The {kind} "{name}" is invalid:'
        if self.reason != "Invalid":
            told = f"Error from server ({self.reason}): {self.message}"
        lines.append(str(self.document.error((), told)))
        for problem in self.problems:
            place = str(self.document.error(problem.path or (), "")).partition(": ")[0]
            lines.append(f"{place}: * {problem if problem.path else problem.text}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict for a program."""
        meta = self.document.data.get("metadata") or {}
        return {
            "file": self.document.source,
            "document": self.document.number,
            "kind": self.document.data["kind"],
            "namespace": meta.get("namespace") or "",
            "name": meta.get("name") or "",
            "valid": not self.code,
            "code": self.code or 200,
            "reason": self.reason,
            "message": self.message,
            "causes": [
                {"field": structural.render(each.path or ()), "message": each.text} for each in self.problems
            ],
            "warnings": self.warnings,
        }


class Validator:
    """Judges objects; ``runtimes`` are those that TrainJobs may refer to."""

    def __init__(self, schemas: Mapping[GVK, structural.Schema], namespace: str = DEFAULT_NAMESPACE) -> None:
        self._schemas = schemas
        self._namespace = namespace
        self._evaluate = Evaluator()
        self._client = FakeClient()
        self._handlers: dict[GVK, tuple[str, ValidatorHandler[Any]]] = {}

    async def start(self, found: Iterable[Document]) -> None:
        """Make the runtimes among ``found``, and the shipped ones, known, and the webhooks' validators."""
        shipped = [*resources.manifests("runtimes"), *resources.manifests("runtimes/data-cache")]
        taken = set()
        for data in [*(document.data for document in found), *shipped]:
            kind = _KINDS.get(GVK.parse(data["apiVersion"], data["kind"]))
            if kind is None or kind is TrainJob or self._check(data)[1]:
                continue
            obj = kind.from_dict(self._defaulted(data))
            if (kind, obj.key) not in taken:
                taken.add((kind, obj.key))
                self._client.add(obj)
        runtimes = await core.new(self._client, self._client)
        for kind, validator in webhooks.validators(runtimes).items():
            name = f"validator.{kind.gvk.kind.lower()}.{kind.gvk.group}"
            self._handlers[kind.gvk] = (name, ValidatorHandler(kind, validator))

    async def judge(self, document: Document) -> Verdict:
        """Return what the server would answer to a create of ``document``."""
        gvk, data = document.gvk, document.data
        unknown, undecodable, problems = self._check_all(data)
        if unknown or undecodable:
            listed = ", ".join(f'unknown field "{structural.render(path)}"' for path in unknown)
            why = undecodable or f"strict decoding error: {listed}"
            text = f'{gvk.kind} in version "{gvk.version}" cannot be handled as a {gvk.kind}: {why}'
            fields = [Problem(path, "unknown field") for path in unknown]
            return Verdict(document, 400, "BadRequest", text, fields)
        if problems:
            listed = ", ".join(map(str, problems))
            name = self._defaulted(data)["metadata"].get("name") or ""
            body = f"[{listed}]" if len(problems) > 1 else listed
            text = f'{gvk.kind}.{gvk.group} "{name}" is invalid: {body}'
            return Verdict(document, 422, "Invalid", text, problems)
        name, handler = self._handlers[gvk]
        response = await self._ask(handler, self._defaulted(data))
        warnings = response.warnings or []
        if response.allowed:
            return Verdict(document, warnings=warnings)
        status = response.status
        said = status.message if status is not None else ""
        text = f'admission webhook "{name}" denied the request: {said}'
        code, reason = (status.code, status.reason) if status is not None else (403, "Forbidden")
        return Verdict(document, code or 403, reason or "Forbidden", text, warnings=warnings)

    async def _ask(self, handler: ValidatorHandler[Any], data: dict[str, Any]) -> AdmissionResponse:
        try:
            return await handler.handle(AdmissionRequest(uid="offline", operation="CREATE", object=data))
        except BadRequestError as error:
            return errored(400, str(error))

    def _check(self, data: dict[str, Any]) -> tuple[structural.Schema, bool]:
        """Return the kind's schema, and whether anything is wrong with ``data``."""
        return self._schemas[GVK.parse(data["apiVersion"], data["kind"])], any(self._check_all(data))

    def _check_all(self, data: dict[str, Any]) -> tuple[list[structural.Path], str | None, list[Problem]]:
        schema = self._schemas[GVK.parse(data["apiVersion"], data["kind"])]
        unknown, undecodable = structural.unknown(schema, data), structural.undecodable(data)
        if unknown or undecodable:
            return unknown, undecodable, []
        data = self._defaulted(data)
        problems = [*structural.metadata(data), *structural.problems(schema, data)]
        if any(problem.grave for problem in problems):
            problems.append(Problem(None, f"Invalid value: null: {structural.UNCHECKED}"))
        else:
            problems += structural.rules(schema, data, self._evaluate)
        return [], None, list(dict.fromkeys(problems))

    def _defaulted(self, data: dict[str, Any]) -> dict[str, Any]:
        gvk = GVK.parse(data["apiVersion"], data["kind"])
        stored = copy.deepcopy(data)
        stored.pop("status", None)  # a subresource: nobody can set it with a create
        structural.default(self._schemas[gvk], stored)
        meta = stored["metadata"] = stored.get("metadata") or {}
        if _KINDS[gvk] is not ClusterTrainingRuntime:
            meta.setdefault("namespace", self._namespace)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = f"{meta['generateName']}xxxxx"
        return stored


def schemas() -> dict[GVK, structural.Schema]:
    """Return the shipped CRDs' schemas by the kinds they serve."""
    found: dict[GVK, structural.Schema] = {}
    for crd in resources.crds():
        spec = crd["spec"]
        for version in spec["versions"]:
            gvk = GVK(spec["group"], version["name"], spec["names"]["kind"])
            found[gvk] = version["schema"]["openAPIV3Schema"]
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``validate`` to ``parser``."""
    documents.add_arguments(parser, outputs=("text", "json"))
    parser.add_argument("-n", "--namespace", default=DEFAULT_NAMESPACE, help="where objects without one are")
    parser.set_defaults(run=validate_command)


async def validate_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print a verdict for each of Trainer's objects; return 1 if any is a refusal.

    Raises:
        InputError: a file cannot be read, or holds none of Trainer's objects.
    """
    found = await documents.load(arguments.files)
    ours = [document for document in found if document.gvk in _KINDS]
    for document in found:
        if document.gvk not in _KINDS:
            err.say(str(document.error((), "not validated: none of Trainer's kinds")))
    if not ours:
        raise documents.InputError("there is none of Trainer's objects in the input")
    validator = Validator(schemas(), arguments.namespace)
    await validator.start(ours)
    verdicts = [await validator.judge(document) for document in ours]
    if arguments.output == "json":
        out.write_json([verdict.to_dict() for verdict in verdicts])
    else:
        for verdict in verdicts:
            for line in verdict.told():
                out.say(line)
    return 1 if any(verdict.code for verdict in verdicts) else 0
