# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every kind this project has a model for, in one explicit list."""

from __future__ import annotations

from controller_runtime.apis import scheme
from controller_runtime.apis.machinery.object import Object
from controller_runtime.apis.machinery.scheme import Scheme


def default_scheme() -> Scheme:
    """Return a new scheme that knows Kubernetes' kinds and those of :mod:`pkg.apis`; they are imported when first needed."""
    return Scheme(later=_kinds)


def _kinds() -> tuple[type[Object], ...]:
    from pkg.apis.jobset import v1alpha2 as jobset
    from pkg.apis.kai import v2 as kai_queue
    from pkg.apis.kai import v2alpha2 as kai
    from pkg.apis.schedulerplugins import v1alpha1 as schedulerplugins
    from pkg.apis.trainer import v1alpha1 as trainer
    from pkg.apis.volcano import v1beta1 as volcano

    return (
        *scheme.kinds(),
        jobset.JobSet,
        kai.PodGroup,
        kai_queue.Queue,
        schedulerplugins.PodGroup,
        trainer.ClusterTrainingRuntime,
        trainer.TrainJob,
        trainer.TrainingRuntime,
        volcano.PodGroup,
    )
