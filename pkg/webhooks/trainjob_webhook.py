# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Admission of TrainJobs: the verdict is the runtime's, found by the reference."""

from __future__ import annotations

from collections.abc import Mapping

import controller_runtime as ctrl
from controller_runtime.apis.machinery import equality
from controller_runtime.apis.machinery.errors import ForbiddenError
from controller_runtime.webhook.admission import CustomValidator

from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime import Runtime, UnsupportedRuntimeError, runtime_for
from pkg.util import offload

# +kubebuilder:webhook:path=/validate-trainer-kubeflow-org-v1alpha1-trainjob,mutating=false,failurePolicy=fail,sideEffects=None,groups=trainer.kubeflow.org,resources=trainjobs,verbs=create;update,versions=v1alpha1,name=validator.trainjob.trainer.kubeflow.org,admissionReviewVersions=v1


class TrainJobWebhook(CustomValidator[TrainJob]):
    """Validates TrainJobs."""

    def __init__(self, runtimes: Mapping[str, Runtime]) -> None:
        self._runtimes = runtimes

    async def validate_create(self, obj: TrainJob) -> list[str]:
        """Return the warnings; raises when a plugin finds an error or no runtime answers to the reference."""
        return await self._validate(None, obj)

    async def validate_update(self, old: TrainJob, new: TrainJob) -> list[str]:
        """As :meth:`validate_create`, with the former object at hand.

        An update that leaves the spec alone, or an object that is being deleted, is not judged: a finalizer must
        come off even when the runtime has been deleted before.
        """
        if new.metadata.deletion_timestamp is not None or equality.deep_equal(old.spec, new.spec):
            return []
        return await self._validate(old, new)

    async def validate_delete(self, obj: TrainJob) -> list[str]:
        """Allow it."""
        del obj
        return []

    async def _validate(self, old: TrainJob | None, new: TrainJob) -> list[str]:
        try:
            runtime = runtime_for(self._runtimes, new.spec.runtime_ref)
        except UnsupportedRuntimeError as error:
            raise ForbiddenError(str(error), code=403, reason="Forbidden") from error
        warnings, errors = await runtime.validate_objects(old, new)
        aggregate = await offload.run(new, errors.to_aggregate)  # makes the texts, which quote what is wrong
        if aggregate is not None:
            for warning in warnings:
                aggregate.add_note(warning)
            raise aggregate
        return warnings


def setup_webhook_for_train_job(mgr: ctrl.Manager, runtimes: Mapping[str, Runtime]) -> None:
    """Serve the webhook."""
    ctrl.new_webhook_managed_by(mgr, TrainJob).with_validator(TrainJobWebhook(runtimes)).complete()
