# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Calls the webhooks' handlers for a verdict, and records the individual field errors behind it."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Awaitable, Mapping
from typing import Any, Never, TypeVar

from controller_runtime.apis.admission.v1 import AdmissionRequest
from controller_runtime.machinery import Object, Struct, field
from controller_runtime.machinery.gojson import go_json
from controller_runtime.webhook import admission

from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.trainer.v1alpha1 import ClusterTrainingRuntime, TrainJob
from pkg.runtime import Runtime
from pkg.webhooks import (
    ClusterTrainingRuntimeWebhook,
    TrainingRuntimeWebhook,
    TrainJobDefaulter,
    TrainJobWebhook,
)

from .world import NOW

T = TypeVar("T", bound=Object)
Document = dict[str, Any]


class _OverheardRuntime:
    """A runtime that records each of its errors, because the webhook removes repeated texts."""

    def __init__(self, runtime: Runtime, errors: list[field.FieldError]) -> None:
        self._runtime = runtime
        self._errors = errors

    async def review(
        self, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList, list[Never]]:
        """Return no template violations: upstream does not check pod templates, so no answer was recorded."""
        warnings, errors = await self._runtime.validate_objects(old, new)
        self._errors += errors
        return warnings, errors, []


class _OverheardValidator(admission.CustomValidator[T]):
    """A validator that records the field errors that it raises."""

    def __init__(self, validator: admission.CustomValidator[T], errors: list[field.FieldError]) -> None:
        self._validator = validator
        self._errors = errors

    async def validate_create(self, obj: T) -> list[str]:
        return await self._keeping(self._validator.validate_create(obj))

    async def validate_update(self, old: T, new: T) -> list[str]:
        return await self._keeping(self._validator.validate_update(old, new))

    async def validate_delete(self, obj: T) -> list[str]:
        return await self._validator.validate_delete(obj)

    async def _keeping(self, verdict: Awaitable[list[str]]) -> list[str]:
        try:
            return await verdict
        except field.AggregateError as aggregate:
            self._errors += [error for error in aggregate.errors if isinstance(error, field.FieldError)]
            raise


async def verdict_on_train_job(
    runtimes: Mapping[str, Runtime], old: Document | None, new: Document
) -> Document:
    """Return the TrainJob webhook's answer."""
    errors: list[field.FieldError] = []
    overheard: Any = {key: _OverheardRuntime(runtime, errors) for key, runtime in runtimes.items()}
    return await _verdict(TrainJob, TrainJobWebhook(overheard), errors, old, new)


async def mutation_of_train_job(cfg: Configuration, old: Document | None, new: Document) -> Document:
    """Return the answer of the TrainJob's mutating webhook, its patch sorted by path."""
    handler = admission.MutatorHandler(TrainJob, TrainJobDefaulter(cfg, now=lambda: NOW))
    request = AdmissionRequest(
        uid="1",
        operation="CREATE" if old is None else "UPDATE",
        object=copy.deepcopy(new),
        old_object=copy.deepcopy(old),
    )
    response = await handler.handle(request)
    patches = json.loads(base64.b64decode(response.patch)) if response.patch is not None else []
    return {"allowed": response.allowed, "patches": sorted(patches, key=lambda each: str(each["path"]))}


async def verdict_on_runtime(
    kind: type[Object], old: Document | None, new: Document, cfg: Configuration
) -> Document:
    """Return the answer of the webhook for this kind of runtime."""
    errors: list[field.FieldError] = []
    validator: admission.CustomValidator[Any] = (
        ClusterTrainingRuntimeWebhook(cfg) if kind is ClusterTrainingRuntime else TrainingRuntimeWebhook()
    )
    return await _verdict(kind, _OverheardValidator(validator, errors), errors, old, new)


async def _verdict(
    kind: type[T],
    validator: admission.CustomValidator[T],
    errors: list[field.FieldError],
    old: Document | None,
    new: Document,
) -> Document:
    request = AdmissionRequest(
        uid="1",
        operation="CREATE" if old is None else "UPDATE",
        object=copy.deepcopy(new),
        old_object=copy.deepcopy(old),
    )
    response = await admission.ValidatorHandler(kind, validator).handle(request)
    status = response.status
    answer: Document = {
        "allowed": response.allowed,
        "code": status.code if status is not None else None,
        "errors": [_field_error(error) for error in errors],
        "warnings": response.warnings or [],
    }
    if not response.allowed:
        answer["message"] = status.message if status is not None else None
    return answer


def _field_error(error: field.FieldError) -> Document:
    shown: Document = {
        "type": error.type.value,
        "field": error.field,
        "detail": error.detail,
        "error": str(error),
    }
    if error.type not in (field.ErrorType.FORBIDDEN, field.ErrorType.INTERNAL):
        shown["badValue"] = _json(error.bad_value)
    return shown


def _json(value: Any) -> Any:
    if isinstance(value, field.Quoted):
        value = value.value
    return json.loads(go_json(value)) if isinstance(value, Struct | list | dict) else value
