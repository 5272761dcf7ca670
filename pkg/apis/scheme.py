# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The list of all kinds that this project has a model for."""

from __future__ import annotations

from controller_runtime.apis import scheme
from controller_runtime.machinery import Object, Scheme


def default_scheme() -> Scheme:
    """Return a new scheme with Kubernetes' kinds and those of :mod:`pkg.apis`, which are imported at first use."""
    return Scheme(later=_kinds)


def _kinds() -> tuple[type[Object], ...]:
    from pkg.apis.jobset import v1alpha2 as jobset
    from pkg.apis.kai import v2 as kai_queue
    from pkg.apis.kai import v2alpha2 as kai
    from pkg.apis.schedulerplugins import v1alpha1 as schedulerplugins
    from pkg.apis.scheduling import v1alpha1 as scheduling_1_35
    from pkg.apis.scheduling import v1alpha2 as scheduling_1_36
    from pkg.apis.scheduling import v1beta1 as scheduling_1_37
    from pkg.apis.trainer import v1alpha1 as trainer
    from pkg.apis.volcano import v1beta1 as volcano

    return (
        *scheme.kinds(),
        jobset.JobSet,
        kai.PodGroup,
        kai_queue.Queue,
        schedulerplugins.PodGroup,
        scheduling_1_35.Workload,
        scheduling_1_36.PodGroup,
        scheduling_1_37.PodGroup,
        trainer.ClusterTrainingRuntime,
        trainer.TrainJob,
        trainer.TrainingRuntime,
        volcano.PodGroup,
    )
