# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every kind this project has a model for, in one explicit list."""

from __future__ import annotations

from pkg.apis.machinery.object import Object
from pkg.apis.machinery.scheme import Scheme


def default_scheme() -> Scheme:
    """Return a new scheme that knows all kinds of :mod:`pkg.apis`; they are imported when it is first asked."""
    return Scheme(later=_kinds)


def _kinds() -> tuple[type[Object], ...]:
    from pkg.apis.admission import v1 as admission
    from pkg.apis.admissionregistration import v1 as admissionregistration
    from pkg.apis.apiextensions import v1 as apiextensions
    from pkg.apis.authentication import v1 as authentication
    from pkg.apis.authorization import v1 as authorization
    from pkg.apis.batch import v1 as batch
    from pkg.apis.coordination import v1 as coordination
    from pkg.apis.core import v1 as core
    from pkg.apis.jobset import v1alpha2 as jobset
    from pkg.apis.node import v1 as node
    from pkg.apis.rbac import v1 as rbac
    from pkg.apis.schedulerplugins import v1alpha1 as schedulerplugins
    from pkg.apis.scheduling import v1 as scheduling
    from pkg.apis.scheduling import v2 as kai_queue
    from pkg.apis.scheduling import v2alpha2 as kai
    from pkg.apis.trainer import v1alpha1 as trainer
    from pkg.apis.volcano import v1beta1 as volcano

    return (
        admission.AdmissionReview,
        admissionregistration.MutatingWebhookConfiguration,
        admissionregistration.ValidatingWebhookConfiguration,
        apiextensions.CustomResourceDefinition,
        authentication.TokenRequest,
        authentication.TokenReview,
        authorization.SubjectAccessReview,
        batch.CronJob,
        batch.Job,
        coordination.Lease,
        core.ConfigMap,
        core.Event,
        core.LimitRange,
        core.Namespace,
        core.Node,
        core.Pod,
        core.PodTemplate,
        core.Secret,
        core.Service,
        core.ServiceAccount,
        jobset.JobSet,
        kai.PodGroup,
        kai_queue.Queue,
        node.RuntimeClass,
        rbac.ClusterRole,
        rbac.ClusterRoleBinding,
        rbac.Role,
        rbac.RoleBinding,
        scheduling.PriorityClass,
        schedulerplugins.PodGroup,
        trainer.ClusterTrainingRuntime,
        trainer.TrainJob,
        trainer.TrainingRuntime,
        volcano.PodGroup,
    )
