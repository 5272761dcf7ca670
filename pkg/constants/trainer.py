# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Labels, annotations, reasons, messages and environment names of Kubeflow Trainer; nothing else."""

from __future__ import annotations

from typing import Final

GROUP: Final = "trainer.kubeflow.org"

API_RELEASE: Final = "v2.3.0"
"""The release of Kubeflow Trainer whose API is served. The SDK reads it from the cluster."""

DEFAULT_JOB_REPLICAS: Final = 1
"""Number of replicas of a ReplicatedJob. A ReplicatedJob with several replicas is not supported."""

FIELD_OWNER: Final = "trainer"
"""Field manager of applied objects."""

RESOURCE_IN_USE_FINALIZER: Final = f"{GROUP}/resource-in-use"

TRAIN_JOB_CONTROLLER_NAME: Final = f"{GROUP}/trainjob-controller"
"""The value of a TrainJob's ``spec.managedBy`` for this manager. It is also the default of the field."""

SUSPENDED_ANNOTATION: Final = f"{GROUP}/suspended-generation"
"""Annotation by which the webhook records a suspension: the generation of the TrainJob at that time.

The controller removes the annotation as soon as no JobSet runs with an earlier spec.
"""

STARTS_ANNOTATION: Final = f"{GROUP}/starts"
"""Annotation of a JobSet: how often its TrainJob was started, without JobSet's restarts of this JobSet."""

RESUMES_ANNOTATION: Final = f"{GROUP}/resumes"
"""Annotation of pods: how often their TrainJob was started before, without JobSet's restarts of their JobSet."""

# --- clients of two API generations ---

NUM_PROC_PER_NODE_ANNOTATION: Final = f"{GROUP}/num-proc-per-node"
"""Annotation with the word for ``spec.trainer.numProcPerNode``: newer clients can decode only numbers in that field."""

FIRST_GENERATION_MANAGERS: Final = (f"{GROUP}/first-generation", f"{GROUP}/first-generation-2")
"""Managers of the runtime patch that mirrors ``podTemplateOverrides``, ``labels`` and ``annotations``.

When an immutable field of the mirror changes, the mirror gets the other manager, because a patch with another manager
counts as a new patch.
"""

# --- labels ---

KUEUE_QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""Label of a TrainJob that Kueue manages: the name of its queue."""

KUEUE_POD_SET_LABEL: Final = "kueue.x-k8s.io/podset"
"""Kueue up to v0.16 places the pods of a job by an override, and sets this label in its metadata."""

KUEUE_MANAGER: Final = "kueue.x-k8s.io/manager"
"""The manager of the runtime patch with which Kueue v0.17 and newer places pods."""

LABEL_TRAIN_JOB_ANCESTOR: Final = f"{GROUP}/trainjob-ancestor-step"
"""Label of a template's job: the step of the TrainJob that the job carries out (an initializer or the trainer)."""

LABEL_SUPPORT: Final = f"{GROUP}/support"
SUPPORT_DEPRECATED: Final = "deprecated"
RUNTIME_DEPRECATION_POLICY_URL: Final = (
    "https://www.kubeflow.org/docs/components/trainer/operator-guides/runtime/#runtime-deprecation-policy"
)
RUNTIME_DEPRECATION_POLICY_URL_2_3: Final = (
    "https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy"
)

# --- jobs, containers and values of the ancestor label ---

DATASET_INITIALIZER: Final = "dataset-initializer"
MODEL_INITIALIZER: Final = "model-initializer"
ANCESTOR_TRAINER: Final = "trainer"
NODE: Final = "node"
LAUNCHER: Final = "launcher"

CONTAINER_TRAINER_PORT: Final = 29500
"""Port on which the trainer's nodes find each other."""

JOB_COMPLETION_INDEX_FIELD_PATH: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

# --- conditions and events ---

TRAIN_JOB_SUSPENDED_MESSAGE: Final = "TrainJob is suspended"
TRAIN_JOB_RESUMED_MESSAGE: Final = "TrainJob is resumed"
TRAIN_JOB_EXPIRING_REASON: Final = "TrainJobExpiring"
"""The reason of the event that announces the deletion of a finished TrainJob."""
TRAIN_JOB_DELETION_FAILED_REASON: Final = "TrainJobDeletionFailed"
"""The reason of the event that says why a finished TrainJob cannot be deleted."""
TRAIN_JOB_DEADLINE_EXCEEDED_MESSAGE: Final = "TrainJob exceeded its active deadline"

# --- torchrun ---

TORCH_ENV_NUM_NODES: Final = "PET_NNODES"
TORCH_ENV_NUM_PROC_PER_NODE: Final = "PET_NPROC_PER_NODE"
TORCH_ENV_NODE_RANK: Final = "PET_NODE_RANK"
TORCH_ENV_MASTER_ADDR: Final = "PET_MASTER_ADDR"
TORCH_ENV_MASTER_PORT: Final = "PET_MASTER_PORT"

TORCH_RUN_RESERVED_ENV_NAMES: Final = frozenset(
    {
        TORCH_ENV_NUM_NODES,
        TORCH_ENV_NUM_PROC_PER_NODE,
        TORCH_ENV_NODE_RANK,
        TORCH_ENV_MASTER_ADDR,
        TORCH_ENV_MASTER_PORT,
    }
)
"""Environment variables that the Torch plugin sets and a TrainJob must not set."""

# --- XGBoost ---

XGBOOST_ENV_TRACKER_URI: Final = "DMLC_TRACKER_URI"
XGBOOST_ENV_TRACKER_PORT: Final = "DMLC_TRACKER_PORT"
XGBOOST_ENV_TASK_ID: Final = "DMLC_TASK_ID"
XGBOOST_ENV_NUM_WORKER: Final = "DMLC_NUM_WORKER"

XGBOOST_RESERVED_ENV_NAMES: Final = frozenset(
    {
        XGBOOST_ENV_TRACKER_URI,
        XGBOOST_ENV_TRACKER_PORT,
        XGBOOST_ENV_TASK_ID,
        XGBOOST_ENV_NUM_WORKER,
    }
)
"""Environment variables that the XGBoost plugin sets and a TrainJob must not set."""
