# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Rewrites TrainJobs and runtimes of one API generation for the other, and lists the fields that are lost.

Trainer v2.1 has the first generation, v2.2 and v2.3 have the second. A field is not changed if both generations have it
with the same values and the same effect.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from controller_runtime.machinery import JSON
from controller_runtime.machinery.patch import StrategicMergeError
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainingRuntime, TrainJob
from pkg.constants import trainer as constants
from pkg.util import generations
from pkg.webhooks import mirror, v23rules

from trainerctl.offline import schema
from trainerctl.offline.inputfiles import InputObject
from trainerctl.offline.stored import schemas

Wire = dict[str, JSON]
Steps = tuple[str | int, ...]

FIRST: Final = "2.1"
SECOND: Final = "2.3"
MANAGER: Final = f"{constants.GROUP}/trainerctl"
"""The ``manager`` of the runtime patch into which we convert fields of the first generation."""

_OLD_FIELDS: Final = ("podTemplateOverrides", "labels", "annotations")
_WORD_ANNOTATION: Final = constants.NUM_PROC_PER_NODE_ANNOTATION
_POD_FIELDS: Final = ("securityContext", "terminationGracePeriodSeconds")
"""The pod spec in a runtime patch has these fields, but ``podTemplateOverrides`` do not."""
_POD_TEMPLATE_STEP: Final = slice(10, 11)
"""A path to a field in a runtime patch has ``template`` at this position if the field is in a pod template."""
_NEW_POLICIES: Final = ("jax", "xgboost", "flux")


class Loss(NamedTuple):
    """A field that the other generation cannot hold."""

    path: Steps
    problem: str


class Converted(NamedTuple):
    """A rewritten object, and the fields that it lost."""

    data: Wire
    losses: list[Loss]


def convert(document: InputObject, release: str) -> Converted:
    """Rewrite the object for ``release``, which is ``2.1`` or ``2.3``. Objects of other kinds are not changed.

    Raises:
        InputError: a field has a JSON type that the kind does not permit.
    """
    data, losses = copy.deepcopy(document.data), list[Loss]()
    steps: dict[tuple[str, bool], Callable[[InputObject, Wire], Iterator[Loss]]] = {
        (FIRST, True): _train_job_to_first,
        (SECOND, True): _train_job_to_second,
        (FIRST, False): _runtime_to_first,
        (SECOND, False): _runtime_to_second,
    }
    if document.gvk in (TrainJob.gvk, TrainingRuntime.gvk, ClusterTrainingRuntime.gvk):
        losses += steps[release, document.gvk == TrainJob.gvk](document, data)
    return Converted(data, losses)


def _train_job_to_second(document: InputObject, data: Wire) -> Iterator[Loss]:
    train_job = document.decode(TrainJob)
    for error in v23rules.violations(None, train_job):
        yield Loss((), v23rules.REFUSED_LATER.format(error))
    spec = data.get("spec") or {}
    yield from _number(data, spec.get("trainer") or {})
    _drop_mirror(spec)
    if not generations.has_first_generation(train_job.spec):
        return
    patches = spec.get("runtimePatches") or []
    try:
        made = mirror.compose(train_job.spec).to_dict()
    except (mirror.NotMirrorableError, StrategicMergeError) as error:
        yield Loss(
            ("spec",), f"podTemplateOverrides, labels and annotations have no equal runtime patch: {error}"
        )
        return
    for field in _OLD_FIELDS:
        spec.pop(field, None)
    used = {each.get("manager") for each in patches}
    names = (MANAGER, *(f"{MANAGER}-{number}" for number in range(2, len(used) + 2)))
    manager = next(name for name in names if name not in used)
    spec["runtimePatches"] = [{**made, "manager": manager}, *patches]


def _number(data: Wire, trainer: Wire) -> Iterator[Loss]:
    """Replace a string in ``numProcPerNode`` by a number. Remove ``auto``, and move any other word to an annotation."""
    value = trainer.get("numProcPerNode")
    if not isinstance(value, str):
        return
    path = ("spec", "trainer", "numProcPerNode")
    try:
        number = generations.number_or_word(value)
    except ValueError as error:
        yield Loss(path, str(error))
        return
    del trainer["numProcPerNode"]
    if isinstance(number, int):
        trainer["numProcPerNode"] = number
    elif number != "auto":  # an absent number means auto
        metadata = data["metadata"] = data.get("metadata") or {}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), _WORD_ANNOTATION: number}
        yield Loss(
            path,
            f'"{number}" must be a number in v2.3; only this project reads the annotation {_WORD_ANNOTATION}',
        )


def _drop_mirror(spec: Wire) -> None:
    """If a TrainJob sets fields of the first generation, remove the runtime patches that mirror these fields."""
    if any(spec.get(field) for field in _OLD_FIELDS):
        mirrors = constants.FIRST_GENERATION_MANAGERS
        kept = [each for each in spec.pop("runtimePatches", None) or () if each.get("manager") not in mirrors]
        spec.update({"runtimePatches": kept} if kept else {})


def _train_job_to_first(document: InputObject, data: Wire) -> Iterator[Loss]:
    document.decode(TrainJob)
    spec = data.get("spec") or {}
    _drop_mirror(spec)
    annotations = (data.get("metadata") or {}).get("annotations") or {}
    trainer = spec.get("trainer")
    if _WORD_ANNOTATION in annotations and isinstance(trainer, dict):
        trainer.setdefault("numProcPerNode", annotations.pop(_WORD_ANNOTATION))
        if not annotations:
            del data["metadata"]["annotations"]
    if spec.pop("activeDeadlineSeconds", None) is not None:
        yield Loss(("spec", "activeDeadlineSeconds"), "a TrainJob of v2.1 has no deadline")
    yield from _unknown(document, spec)
    for number, patch in enumerate(spec.pop("runtimePatches", None) or ()):
        path: Steps = ("spec", "runtimePatches", number, "trainingRuntimeSpec", "template")
        template = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
        for field, value in (template.get("metadata") or {}).items():
            if field not in ("labels", "annotations"):
                yield Loss((*path, "metadata", field), "a TrainJob of v2.1 lacks this field")
            elif value:
                spec[field] = {**(spec.get(field) or {}), **value}
        jobs = (template.get("spec") or {}).get("replicatedJobs") or ()
        for place, job in enumerate(jobs):
            below: Steps = (*path, "spec", "replicatedJobs", place, "template")
            yield from _override(spec, job, below)


def _unknown(document: InputObject, spec: Wire) -> Iterator[Loss]:
    """Yield the unknown fields of runtime patches that are outside pod templates: overrides cannot contain them."""
    if not spec.get("runtimePatches"):
        return
    for path in schema.unknown(schemas()[document.gvk], document.data):
        if path[:2] == ("spec", "runtimePatches") and path[_POD_TEMPLATE_STEP] != ("template",):
            yield Loss(path, "unknown field; it is not converted")


def _override(spec: Wire, job: Wire, path: Steps) -> Iterator[Loss]:
    """Append an override with the same effect as the patch of one job. Yield the fields that overrides do not have."""
    template = job.get("template") or {}
    if template.get("metadata"):
        yield Loss((*path, "metadata"), "v2.1 cannot change the metadata of a Job, only of its pods")
    pod = (template.get("spec") or {}).get("template") or {}
    pod_spec, below = pod.get("spec") or {}, (*path, "spec", "template", "spec")
    for field in _POD_FIELDS:
        if pod_spec.pop(field, None) is not None:
            yield Loss((*below, field), "podTemplateOverrides of v2.1 lack this field")
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(pod_spec.get(kind) or ()):
            if container.pop("securityContext", None) is not None:
                place = (*below, kind, index, "securityContext")
                yield Loss(place, "podTemplateOverrides of v2.1 lack this field")
    made = {name: value for name, value in (("metadata", pod.get("metadata")), ("spec", pod_spec)) if value}
    if made:
        override = {"targetJobs": [{"name": job.get("name")}], **made}
        spec["podTemplateOverrides"] = [*(spec.get("podTemplateOverrides") or ()), override]


def _runtime_to_second(document: InputObject, data: Wire) -> Iterator[Loss]:
    document.decode(TrainingRuntime if document.gvk == TrainingRuntime.gvk else ClusterTrainingRuntime)
    torch = ((data.get("spec") or {}).get("mlPolicy") or {}).get("torch")
    if not isinstance(torch, dict):
        return
    path = ("spec", "mlPolicy", "torch")
    if (value := torch.pop("numProcPerNode", None)) not in (None, "auto"):
        problem = f"v2.3 ignores {value} in a runtime; set spec.trainer.numProcPerNode of its TrainJobs"
        yield Loss((*path, "numProcPerNode"), problem)
    if torch.pop("elasticPolicy", None) is not None:
        yield Loss((*path, "elasticPolicy"), "v2.3 has no elastic policy")


def _runtime_to_first(document: InputObject, data: Wire) -> Iterator[Loss]:
    document.decode(TrainingRuntime if document.gvk == TrainingRuntime.gvk else ClusterTrainingRuntime)
    spec = data.get("spec") or {}
    policy = spec.get("mlPolicy") or {}
    for name in _NEW_POLICIES:
        if policy.pop(name, None) is not None:
            yield Loss(("spec", "mlPolicy", name), "v2.1 lacks this policy")
    torch = policy.get("torch")
    if isinstance(torch, dict) and torch.pop("envInjection", None) is not None:
        problem = "v2.1 sets torchrun's variables in the container node only"
        yield Loss(("spec", "mlPolicy", "torch", "envInjection"), problem)
    job_set = (spec.get("template") or {}).get("spec") or {}
    if job_set.pop("volumeClaimPolicies", None) is not None:
        path = ("spec", "template", "spec", "volumeClaimPolicies")
        yield Loss(path, "JobSet before v0.11 lacks this field; create the claims yourself")
