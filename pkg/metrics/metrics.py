# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager's metrics of TrainJobs and of the pod grouper, in controller-runtime's registry.

Names start with ``kubeflow_trainer_``. Only the leader counts TrainJobs. The series of the other replicas stay at zero,
so the sum over all replicas is right.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

import anyio
from controller_runtime.machinery import GVK, NamespacedName, conditions
from controller_runtime.metrics import REGISTRY
from prometheus_client.metrics import Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pkg.apis.trainer import v1alpha1 as trainer
from pkg.apis.trainer.v1alpha1 import TrainJob

OTHER: Final = "other"
"""The label of the runtimes that have no series of their own."""
MOST_RUNTIMES: Final = 100
"""Maximum number of runtimes of each kind that have series of their own at the same time."""
_LONGEST_NAME: Final = 253
"""The length of the longest name that an object can have."""
_RUNTIME_KINDS: Final = (trainer.TrainingRuntime.gvk.kind, trainer.ClusterTrainingRuntime.gvk.kind)
_RuntimeName = tuple[str, str]
"""The kind and the name of a runtime."""


class Phase(StrEnum):
    """The phase of a TrainJob, derived from its conditions. A TrainJob is in exactly one phase at a time."""

    RUNNING = "Running"  # no condition is true, which is how the SDK knows a running TrainJob
    SUSPENDED = trainer.TRAIN_JOB_SUSPENDED
    COMPLETE = trainer.TRAIN_JOB_COMPLETE
    FAILED = trainer.TRAIN_JOB_FAILED


TRAIN_JOBS: Final = Gauge(
    "kubeflow_trainer_trainjobs", "TrainJobs by condition", ["condition"], registry=REGISTRY
)
TRAIN_JOBS_BY_RUNTIME: Final = Gauge(
    "kubeflow_trainer_runtime_trainjobs",
    "TrainJobs by kind and name of their runtime and by condition; namespaced runtimes of a name are counted together; "
    "other stands for unknown kinds, and for the runtimes beyond the first 100 of each kind",
    ["kind", "runtime", "condition"],
    registry=REGISTRY,
)
TIME_TO_CHILDREN: Final = Histogram(
    "kubeflow_trainer_trainjob_time_to_children_seconds",
    "Seconds from the watch event of a new TrainJob until its children were applied; of a TrainJob that existed when "
    "the manager started, from its creation, which is known to the second",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 600),
    registry=REGISTRY,
)
TRAIN_JOB_RECONCILES: Final = Counter(
    "kubeflow_trainer_trainjob_reconciles_total",
    "Reconciles of TrainJobs by the state of the TrainJob, or of the JobSet of an active TrainJob",
    ["state"],
    registry=REGISTRY,
)
DRIFT_HEALED: Final = Counter(
    "kubeflow_trainer_drift_healed_total",
    "Children that were applied again because another writer had changed or deleted them",
    ["kind"],
    registry=REGISTRY,
)
for _kind in ("ConfigMap", "JobSet", "PodGroup", "Secret"):
    DRIFT_HEALED.labels(_kind)  # a rate needs the series before its first increment
PODS_GROUPED: Final = Counter(
    "kubeflow_trainer_pods_grouped_total",
    "Pods that were given a group, by the kind of their top owner, the grouper, and why no owner above it was read: "
    "top (it has no owner), none (the pod has no owner), denied (no permission to read its owner)",
    ["kind", "grouper", "reason"],
    registry=REGISTRY,
)
OWNERS_UNREADABLE: Final = Counter(
    "kubeflow_trainer_owners_unreadable_total",
    "Reads of a pod's owner that the API server refused, by kind; other stands for all kinds without a grouper",
    ["kind"],
    registry=REGISTRY,
)
PODS_PUT_OFF: Final = Counter(
    "kubeflow_trainer_pods_put_off_total",
    "Times that a pod waited for its group because its namespace had used its share of the pod grouper",
    registry=REGISTRY,
)


class TrainJobPhases:
    """Updates :data:`TRAIN_JOBS` and :data:`TRAIN_JOBS_BY_RUNTIME`.

    Call :meth:`observe` for each reconciled TrainJob, and :meth:`forget` when a TrainJob is deleted. Tenants choose the
    names of runtimes, so only a limited number of names gets series. A name has a series for each phase, which may be
    zero, from its first TrainJob until its last TrainJob is deleted.
    """

    def __init__(self) -> None:
        self._observed: dict[NamespacedName, tuple[Phase, _RuntimeName, _RuntimeName]] = {}
        """The phase of each TrainJob, its runtime, and the name under which the runtime is counted."""
        self._counts = {phase: TRAIN_JOBS.labels(phase) for phase in Phase}
        self._users: Counts[_RuntimeName] = Counts()
        """The number of TrainJobs that are counted under each name."""
        self._by_runtime: dict[str, dict[str, dict[Phase, Gauge]]] = {
            kind: {} for kind in (*_RUNTIME_KINDS, OTHER)
        }
        """The series by kind and name. To look one up by its labels takes longer than to count."""

    def observe(self, train_job: TrainJob) -> None:
        """Count ``train_job`` in its phase and its runtime, and stop counting it where it was counted before."""
        phase, key, ref = phase_of(train_job), train_job.key, train_job.spec.runtime_ref
        named = ref.kind or "", ref.name
        before = self._observed.get(key)
        if before is not None and before[0] is phase and before[1] == named:
            return
        kind, name = named if named[0] in _RUNTIME_KINDS else (OTHER, OTHER)
        names = self._by_runtime[kind]
        is_full = len(names) - (OTHER in names) >= MOST_RUNTIMES
        if name not in names and (is_full or len(name) > _LONGEST_NAME):
            name = OTHER
        if name not in names:
            series = names[name] = {}
            for each in Phase:
                series[each] = TRAIN_JOBS_BY_RUNTIME.labels(kind, name, each)
        self._observed[key] = phase, named, (kind, name)
        self._counts[phase].inc()
        names[name][phase].inc()
        self._users[kind, name] += 1
        if before is not None:
            self._stop_counting(before[0], before[2])

    def forget(self, key: NamespacedName) -> None:
        """Stop counting the TrainJob of that name, if it was counted."""
        if (before := self._observed.pop(key, None)) is not None:
            self._stop_counting(before[0], before[2])

    def _stop_counting(self, phase: Phase, counted: _RuntimeName) -> None:
        kind, name = counted
        self._counts[phase].dec()
        self._by_runtime[kind][name][phase].dec()
        self._users[counted] -= 1
        if not self._users[counted]:
            del self._users[counted], self._by_runtime[kind][name]
            for each in Phase:
                TRAIN_JOBS_BY_RUNTIME.remove(*counted, each)


def phase_of(train_job: TrainJob) -> Phase:
    """Return the TrainJob's phase; Complete and Failed take precedence over Suspended."""
    if present := train_job.status.conditions:
        for phase in (Phase.COMPLETE, Phase.FAILED, Phase.SUSPENDED):
            if conditions.is_true(present, phase):
                return phase
    return Phase.RUNNING


class DegradedKinds(Collector):
    """Collects a series with the value 1 for each kind that is missing or that the manager may not read."""

    def __init__(self) -> None:
        self._caches: list[Callable[[], Mapping[GVK, str]]] = []

    @contextmanager
    def of(self, degraded: Callable[[], Mapping[GVK, str]]) -> Iterator[None]:
        """Export the result of ``degraded`` at each scrape while the body runs."""
        self._caches.append(degraded)
        try:
            yield
        finally:
            self._caches.remove(degraded)

    def describe(self) -> list[GaugeMetricFamily]:
        """Return the metric family without samples."""
        return [
            GaugeMetricFamily(
                "kubeflow_trainer_kind_degraded",
                "1 for each kind whose feature is off because the kind is missing or may not be read",
                labels=["group", "version", "kind"],
            )
        ]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metric family."""
        (family,) = self.describe()
        for gvk in sorted({gvk for degraded in self._caches for gvk in degraded()}):
            family.add_metric([gvk.group, gvk.version, gvk.kind], 1)
        yield family


KIND_DEGRADED: Final = DegradedKinds()
REGISTRY.register(KIND_DEGRADED)


class DegradedKindsExporter:
    """A runnable of every replica: exports the degraded kinds of the manager's cache while the manager runs."""

    def __init__(self, degraded: Callable[[], Mapping[GVK, str]]) -> None:
        self._degraded = degraded

    def need_leader_election(self) -> bool:
        """Return False: a standby has a cache too."""
        return False

    async def start(self) -> None:
        """Export until cancelled."""
        with KIND_DEGRADED.of(self._degraded):
            await anyio.sleep_forever()
