# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Registers the controllers with a manager."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import controller_runtime as ctrl
from controller_runtime import controller
from controller_runtime.machinery.goduration import seconds

from pkg import features
from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.runtime import Runtime

from .clustertrainingruntime_controller import ClusterTrainingRuntimeReconciler
from .reports import Starts
from .trainingruntime_controller import TrainingRuntimeReconciler
from .trainjob_controller import EVENT_SOURCE, TrainJobReconciler
from .ttl_after_finished import TTLAfterFinished

TRAIN_JOB: Final = "trainjob"
TRAINING_RUNTIME: Final = "trainingruntime"
CLUSTER_TRAINING_RUNTIME: Final = "clustertrainingruntime"

# Leader election's permissions; certificates, controllers and plugins declare their own:
# +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create;get;list;update


def setup_controllers(
    mgr: ctrl.Manager,
    runtimes: Mapping[str, Runtime],
    options: controller.Options | None = None,
    *,
    enabled: Callable[[str], bool] = lambda _name: True,
    cfg: Configuration | None = None,
) -> None:
    """Register the controllers whose names ``enabled`` accepts, by default all three.

    Raises:
        ControllerError: a controller cannot be registered; the message names the controller.
    """
    options, cfg = options or controller.Options(), defaulted() if cfg is None else cfg
    # Registered first, so that a new TrainJob is reconciled before the controllers of runtimes handle it.
    if enabled(TRAIN_JOB):
        recorder = mgr.event_recorder_for(EVENT_SOURCE)
        after = seconds(cfg.not_started_after) if cfg.not_started_after else 0.0
        gates = features.resolve(cfg.feature_gates or {})
        evident = gates.enabled(features.FAILURE_EVIDENCE)
        starts: Starts | None = None
        if after > 0:
            pods = mgr.api_reader if evident else None  # the gate's role permits it
            starts = Starts(mgr.client, recorder, after, runtimes=runtimes, pods=pods, events=mgr.api_reader)
        reconciler = TrainJobReconciler(
            mgr.client,
            recorder,
            runtimes,
            reader=mgr.api_reader,
            starts=starts,
            count_attempts=gates.enabled(features.EXECUTION_ATTEMPTS),
        )
        if starts is not None:
            mgr.add(starts)
        reconciler.setup_with_manager(mgr, options)
        mgr.add_readyz_check("jobset", reconciler.remark)
        if gates.enabled(features.TTL_AFTER_FINISHED):
            default = cfg.ttl_seconds_after_finished
            ttl = TTLAfterFinished(mgr.client, recorder, reader=mgr.api_reader, default=default)
            ttl.setup_with_manager(mgr, options)
        if evident:
            from .evidence import FailureEvidence  # loads the diagnosis

            evidence = FailureEvidence(mgr.api_reader, mgr.client, recorder)
            mgr.add(evidence)
            mgr.add_readyz_check("failure-evidence", evidence.remark)
    if enabled(TRAINING_RUNTIME):
        TrainingRuntimeReconciler(mgr.client, cfg).setup_with_manager(mgr, options)
    if enabled(CLUSTER_TRAINING_RUNTIME):
        ClusterTrainingRuntimeReconciler(mgr.client, cfg).setup_with_manager(mgr, options)
