# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Labels, annotations, reasons and defaults of KAI-Scheduler's pod grouper; nothing else."""

from __future__ import annotations

from typing import Final

# --- defaults of the options ---

SCHEDULER_NAME: Final = "kai-scheduler"
QUEUE_LABEL_KEY: Final = "kai.scheduler/queue"
NODE_POOL_LABEL_KEY: Final = "kai.scheduler/node-pool"
MAX_CONCURRENT_RECONCILES: Final = 10

# --- read from owners and pods, and written to pod groups ---

PROJECT_LABEL_KEY: Final = "project"
PRIORITY_LABEL_KEY: Final = "priorityClassName"
PREEMPTIBILITY_LABEL_KEY: Final = "kai.scheduler/preemptibility"
PREEMPTION_DELAY_KEY: Final = "kai.scheduler/preemption-delay"
STALENESS_GRACE_PERIOD_KEY: Final = "kai.scheduler/staleness-grace-period"
MIN_MEMBER_KEY: Final = "kai.scheduler/batch-min-member"
SKIP_POD_GROUPER_KEY: Final = "kai.scheduler/skip-podgrouper"
USER_LABEL_KEY: Final = "user"

TOPOLOGY_KEY: Final = "kai.scheduler/topology"
TOPOLOGY_REQUIRED_PLACEMENT_KEY: Final = "kai.scheduler/topology-required-placement"
TOPOLOGY_PREFERRED_PLACEMENT_KEY: Final = "kai.scheduler/topology-preferred-placement"

SEGMENT_SIZE_KEY: Final = "kai.scheduler/segment-size"
SEGMENT_TOPOLOGY_REQUIRED_PLACEMENT_KEY: Final = "kai.scheduler/segment-topology-required-placement"
SEGMENT_TOPOLOGY_PREFERRED_PLACEMENT_KEY: Final = "kai.scheduler/segment-topology-preferred-placement"

# --- written ---

POD_GROUP_ANNOTATION_FOR_POD: Final = "pod-group-name"
SUB_GROUP_LABEL_KEY: Final = "kai.scheduler/subgroup-name"
TOP_OWNER_METADATA_KEY: Final = "kai.scheduler/top-owner-metadata"
POD_GROUP_NAME_PREFIX: Final = "pg"

BUILD_PRIORITY_CLASS: Final = "build"
TRAIN_PRIORITY_CLASS: Final = "train"
INFERENCE_PRIORITY_CLASS: Final = "inference"
DEFAULT_QUEUE_NAME: Final = "default-queue"

DEFAULT_PRIORITIES_CONFIG_MAP_TYPES_KEY: Final = "types"
"""Key of the priorities ConfigMap. Its value is a list with the defaults for each type of workload."""

# --- events ---

POD_GROUPER_WARNING: Final = "PodGrouperWarning"
OWNER_NOT_READABLE: Final = "OwnerNotReadable"
"""Reason of the event on a pod whose owner the pod grouper may not read. The pod is grouped without that owner."""
DEFAULTS_NOT_READABLE: Final = "DefaultsNotReadable"
FIELD_IGNORED: Final = "FieldIgnored"
"""Reason of the event on the first pod of a group if a field of its gang has no effect."""
EVENT_SOURCE: Final = "pod-grouper"
