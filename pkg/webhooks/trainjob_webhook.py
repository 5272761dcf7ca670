# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Admission of TrainJobs. A TrainJob is validated against the runtime to which it refers."""

from __future__ import annotations

from collections.abc import Mapping

from controller_runtime.machinery.errors import ForbiddenError
from controller_runtime.webhook import CustomValidator

from pkg import features
from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.runtime import Runtime, UnsupportedRuntimeError, runtime_for
from pkg.util import generations, offload

from . import v23rules
from .trainingruntime_webhook import MOST_TEMPLATE_WARNINGS, ttl_warnings

# +kubebuilder:webhook:path=/validate-trainer-kubeflow-org-v1alpha1-trainjob,mutating=false,failurePolicy=fail,sideEffects=None,groups=trainer.kubeflow.org,resources=trainjobs,verbs=create;update,versions=v1alpha1,name=validator.trainjob.trainer.kubeflow.org,admissionReviewVersions=v1


class TrainJobWebhook(CustomValidator[TrainJob]):
    """Validates TrainJobs."""

    protects_go_clients = True

    def __init__(self, runtimes: Mapping[str, Runtime], cfg: Configuration | None = None) -> None:
        self._runtimes = runtimes
        self._cfg = defaulted() if cfg is None else cfg
        gates = features.resolve(self._cfg.feature_gates or {})
        self._resizes = gates.enabled(features.MUTABLE_NUM_NODES)

    async def validate_create(self, obj: TrainJob) -> list[str]:
        """Return the warnings.

        Raises if a plugin finds an error, or if the kind of the runtime is not registered. In the second generation,
        also raises if v2.3 refuses a value.
        """
        return await self._validate(None, obj)

    async def validate_update(self, old: TrainJob, new: TrainJob) -> list[str]:
        """Validate a changed spec as :meth:`validate_create` does.

        An update that does not change the spec passes, and so does an update of an object that is being deleted:
        finalizers must be removable even after the runtime is deleted. A number that was stored as a string counts as
        equal to the number.
        """
        if new.metadata.deletion_timestamp is not None or generations.same_spec(old, new):
            return []
        return await self._validate(old, new)

    async def validate_delete(self, obj: TrainJob) -> list[str]:
        """Allow the deletion."""
        del obj
        return []

    async def _validate(self, old: TrainJob | None, new: TrainJob) -> list[str]:
        if self._cfg.second_generation:
            # First, because the API server checks the rules of a CRD before it asks webhooks.
            found = v23rules.violations(old, new, resizes=self._resizes)
            low = v23rules.low_numbers(old, new) if self._cfg.previews_v2_4 else ()
            await offload.run(new, lambda: v23rules.refuse(new, (*found, *low)))
        try:
            runtime = runtime_for(self._runtimes, new.spec.runtime_ref)
        except UnsupportedRuntimeError as error:
            raise ForbiddenError(str(error), code=403, reason="Forbidden") from error
        warnings, errors, wrong = await runtime.review(old, new)
        # Formatting may take long, because the errors quote the invalid values.
        aggregate = await offload.run(new, errors.to_aggregate) if errors else None
        if aggregate is not None:
            for warning in warnings:
                aggregate.add_note(warning)
            raise aggregate
        of_ttl = ttl_warnings(self._cfg, old.spec if old is not None else None, new.spec, "spec")
        # The API server will refuse the Jobs, but the TrainJob is admitted: the runtime can still be corrected.
        return [*warnings, *of_ttl, *(each.sentence for each in wrong[:MOST_TEMPLATE_WARNINGS])]
