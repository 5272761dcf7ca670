# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Predicts how an API server with Trainer's CRDs and webhooks treats a new object: it stores it or reports problems.

All commands that read TrainJobs or runtimes from files use this module, so that they agree about an object.
"""

from __future__ import annotations

import base64
import copy
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from controller_runtime.apis.admission.v1 import AdmissionRequest, AdmissionResponse
from controller_runtime.fake import completer
from controller_runtime.machinery import GVK, JSON, Object
from controller_runtime.machinery.patch import apply_json_patch
from controller_runtime.webhook import Handler, MutatorHandler, ValidatorHandler, admission
from pkg import shipped, webhooks
from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.runtime import Runtime
from pkg.webhooks import v23rules

from trainerctl.offline import objectmeta, schema
from trainerctl.offline.hints import hint
from trainerctl.offline.inputfiles import DEFAULT_NAMESPACE
from trainerctl.offline.problem import Path, Problem

if TYPE_CHECKING:
    import cel

Data = dict[str, JSON]

KINDS: Final[dict[GVK, type[Object]]] = {
    kind.gvk: kind for kind in (TrainJob, TrainingRuntime, ClusterTrainingRuntime)
}
_NO_OVERLOAD = (
    "'no such overload': call arguments did not match a supported operator, function or macro signature"
)


@dataclass(frozen=True, slots=True)
class Checked:
    """An object after the server's schema checks. It is valid if ``undecodable`` and ``problems`` are empty."""

    data: Data
    """The stored object, without unknown fields and with defaults. Unlike on the server, the status is kept.

    An ``undecodable`` object is not changed at all.
    """
    unknown: list[Path]
    """Unknown fields. kubectl requests strict field validation, which rejects them. Otherwise the server drops them."""
    undecodable: str | None
    problems: list[Problem]


class Schemas:
    """Checks objects against the schemas and CEL rules of CRDs. Objects without a namespace are in ``namespace``."""

    def __init__(self, schemas: Mapping[GVK, schema.Schema], namespace: str = DEFAULT_NAMESPACE) -> None:
        self._schemas = schemas
        self._namespace = namespace
        self._evaluate = Evaluator()

    def check(self, data: Data) -> Checked:
        """Check ``data`` as the server does when the object is created. It must be of a Trainer kind."""
        gvk = GVK.parse(data["apiVersion"], data["kind"])
        of_kind = self._schemas[gvk]
        unknown, undecodable = schema.unknown(of_kind, data), objectmeta.undecodable(data)
        if undecodable:
            return Checked(data, unknown, undecodable, [])
        stored = self.stored(data)
        created = without_status(stored)
        problems = [*objectmeta.problems(created), *schema.problems(of_kind, created)]
        if any(problem.grave for problem in problems):
            problems.append(Problem(None, f"Invalid value: null: {v23rules.UNCHECKED}"))
        else:
            problems += schema.rules(of_kind, created, self._evaluate)
        return Checked(stored, unknown, None, list(dict.fromkeys(problems)))

    def unknown_field(self, gvk: GVK, path: Path) -> str:
        """Return the text about an unknown field of a Trainer kind, and which field was probably meant."""
        return f"unknown field{hint(self._schemas[gvk], path)}"

    def stored(self, data: Data) -> Data:
        """Return a copy of ``data`` without unknown fields, and with defaults, the namespace and the name."""
        gvk = GVK.parse(data["apiVersion"], data["kind"])
        stored = completer(self._schemas[gvk])(copy.deepcopy(data))
        for _, key in objectmeta.unknown(stored):
            del stored["metadata"][key]
        meta = stored["metadata"] = stored.get("metadata") or {}
        if KINDS[gvk] is not ClusterTrainingRuntime and not meta.get("namespace"):
            meta["namespace"] = self._namespace
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = f"{meta['generateName']}xxxxx"
        return stored


class Webhooks:
    """Runs the code of the webhooks without a server. ``runtimes`` are the manager's runtimes by group and kind."""

    def __init__(self, runtimes: Mapping[str, Runtime], cfg: Configuration | None = None) -> None:
        self._mutator = MutatorHandler(TrainJob, webhooks.TrainJobDefaulter(cfg))
        self._handlers: dict[GVK, Handler] = {
            kind.gvk: ValidatorHandler(kind, validator)
            for kind, validator in webhooks.validators(runtimes, cfg).items()
        }

    async def mutate(self, data: Data) -> tuple[AdmissionResponse, Data]:
        """Return the mutating webhook's answer to the creation of ``data``, and the changed object."""
        if GVK.parse(data["apiVersion"], data["kind"]) != TrainJob.gvk:
            return admission.allowed(), data
        request = AdmissionRequest(uid="offline", operation="CREATE", object=without_status(data))
        response = await self._mutator.handle(request)
        if response.patch is None:
            return response, data
        changed: Data = apply_json_patch(copy.deepcopy(data), json.loads(base64.b64decode(response.patch)))
        return response, changed

    async def review(self, data: Data) -> tuple[AdmissionResponse, str]:
        """Return the validating webhook's answer to the creation of ``data``, and the server's text for a denial."""
        gvk = GVK.parse(data["apiVersion"], data["kind"])
        try:
            request = AdmissionRequest(uid="offline", operation="CREATE", object=without_status(data))
            response = await self._handlers[gvk].handle(request)
        except admission.BadRequestError as error:
            response = admission.errored(400, str(error))
        return response, denial(f"validator.{gvk.kind.lower()}.{gvk.group}", response)


def denial(webhook: str, response: AdmissionResponse) -> str:
    """Return the text that the server writes if a webhook denies a request."""
    message = response.status.message if response.status is not None else ""
    return f'admission webhook "{webhook}" denied the request: {message}'


def without_status(data: Data) -> Data:
    """Return an object without its status. The server drops the status when an object is created."""
    return {name: value for name, value in data.items() if name != "status"}


@cache
def schemas() -> dict[GVK, schema.Schema]:
    """Return the schemas of the shipped CRDs by kind."""
    found: dict[GVK, schema.Schema] = {}
    for crd in shipped.crds():
        spec = crd["spec"]
        for version in spec["versions"]:
            gvk = GVK(spec["group"], version["name"], spec["names"]["kind"])
            found[gvk] = version["schema"]["openAPIV3Schema"]
    return found


def not_served(gvk: GVK) -> str | None:
    """Return the server's error if a Trainer kind has an unknown group or version, otherwise None."""
    ours = gvk.group == TrainJob.gvk.group or gvk.kind in {known.kind for known in KINDS}
    if not ours or gvk in KINDS:
        return None
    return f'no matches for kind "{gvk.kind}" in version "{gvk.api_version}"'


def served_instead(gvk: GVK) -> str:
    """Return a question whether a Trainer kind was meant by a kind that is not served."""
    names = {kind.kind.lower(): kind for kind in KINDS}
    found = difflib.get_close_matches(gvk.kind.lower(), names, 1, 0.8)
    if not found:
        return f"the kinds of {TrainJob.gvk.api_version} are {', '.join(kind.kind for kind in KINDS)}"
    meant = names[found[0]]
    return f"did you mean {meant.kind} in {meant.api_version}?"


class Evaluator:
    """Evaluates CEL rules. Each rule is compiled only once."""

    def __init__(self) -> None:
        import cel  # here: cel also loads its command line, which takes longer than a check

        self._compile = cel.compile
        self._programs: dict[str, cel.Program] = {}

    def __call__(self, rule: str, value: JSON) -> bool | str:
        """Return whether ``rule`` holds for ``value``. If it cannot be evaluated, return the server's message."""
        program = self._programs.get(rule)
        if program is None:
            program = self._programs[rule] = self._compile(rule)
        try:
            return bool(program.execute({"self": value}))
        except TypeError:
            return _NO_OVERLOAD
        except (ValueError, RuntimeError) as error:
            return str(error)
