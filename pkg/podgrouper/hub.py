# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The hub finds the grouper for the kind of a top owner. Each release's rules have their own table of groupers."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from controller_runtime import client
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.machinery import GVK, GroupKind, raised
from controller_runtime.manager import ManagerError

from .plugins import Grouper, Reads
from .plugins.aml import AmlGrouper
from .plugins.defaultgrouper import DefaultGrouper
from .plugins.deployment import DeploymentGrouper, NotebookGrouper, SpotRequestGrouper
from .plugins.grove import GroveGrouper
from .plugins.job import CronJobGrouper, K8sJobGrouper, RunaiJobGrouper, WholeJobGrouper
from .plugins.jobset import JobSetGrouper
from .plugins.jobsettree import JobSetTreeGrouper
from .plugins.knative import KnativeGrouper
from .plugins.kubeflow.distributed_common import JaxGrouper, PaddleGrouper, TensorFlowGrouper, XGBoostGrouper
from .plugins.kubeflow.mpi import MpiGrouper
from .plugins.kubeflow.pytorch import PyTorchGrouper
from .plugins.leaderworkerset import LwsGrouper
from .plugins.native import KINDS, NativeGang, NativeGrouper
from .plugins.podjob import PodJobGrouper
from .plugins.ray.ray_grouper import RayClusterGrouper, RayJobGrouper, RayServiceGrouper
from .plugins.skiptopowner import NimServiceGrouper, SkipTopOwnerGrouper
from .podgroup import OLDEST, Rules
from .settings import Settings

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINT_GROUP: Final = "kai.scheduler.podgrouper.plugins"
ANY_VERSION: Final = "*"
"""A row with this version applies to every version of its kind. A row for an exact version takes precedence."""

_WRAPPERS: Final = (
    GVK("argoproj.io", "v1alpha1", "Workflow"),
    GVK("ray.io", ANY_VERSION, "RayCronJob"),
    GVK("run.ai", ANY_VERSION, "DistributedInferenceWorkload"),
    GVK("run.ai", ANY_VERSION, "DistributedWorkload"),
    GVK("run.ai", ANY_VERSION, "InferenceWorkload"),
    GVK("run.ai", ANY_VERSION, "InteractiveWorkload"),
    GVK("run.ai", ANY_VERSION, "TrainingWorkload"),
    GVK("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
)
"""Kinds that wrap the owner below them."""
_DYNAMO: Final = GVK("nvidia.com", "v1alpha1", "DynamoGraphDeployment")
_ANY_DYNAMO: Final = _DYNAMO._replace(version=ANY_VERSION)
"""By the rules of v0.17, every version of the kind is a wrapper.

This applies only to a top owner. Below another wrapper, only rows for an exact version are used, and this kind has
none.
"""

_NIM_SERVICE: Final = GVK("apps.nvidia.com", ANY_VERSION, "NIMService")

NATIVE: Final = frozenset(version.group_kind for versions in KINDS.values() for version in versions)
"""The kinds of Kubernetes' own API for gangs. Only the spec of these objects is read."""

WATCHED_WITHOUT_ROW: Final = (
    frozenset(
        {
            GroupKind("grove.io", "PodClique"),
            GroupKind("grove.io", "PodCliqueScalingGroup"),
            GroupKind("kubevirt.io", "VirtualMachine"),
            GroupKind("scheduler.grove.io", "PodGang"),
            GroupKind("serving.knative.dev", "Configuration"),
            GroupKind("serving.knative.dev", "Revision"),
        }
    )
    | NATIVE
)
"""Kinds without a row that belong to the workload of a kind with a row.

For example, a PodClique stands between the pods and their PodCliqueSet, a VirtualMachine owns the
VirtualMachineInstance, and the grouper of PodCliqueSets reads PodGangs.
"""

Table = dict[GVK, Grouper]
RowsFactory = Callable[[DefaultGrouper, client.Reader | None], Mapping[GVK, Grouper]]
"""An entry point: a function that takes the default grouper and a reader, and returns rows to add to every table."""


class GrouperLoadError(ManagerError):
    """A third-party grouper cannot be loaded; the text names the entry point and the cause."""


class PluginsHub:
    """Finds the grouper of a kind in the table of the rules that apply."""

    def __init__(self, default: DefaultGrouper, tables: Mapping[Rules, Mapping[GVK, Grouper]]) -> None:
        self.default = default
        self._tables = tables
        self._served_gangs: dict[str, GVK] = {}

    def grouper_for(self, kind: GVK, rules: Rules = OLDEST) -> Grouper:
        """Return the grouper in the row for ``kind``, else in the row for any version, else the default grouper."""
        return _row(self._tables[rules], kind) or self.default

    def grouper_for_gang(self, gang: NativeGang, otherwise: Grouper) -> Grouper:
        """Return a grouper for the pods of ``gang``. It calls ``otherwise`` if we are not allowed to read the gang."""
        return NativeGrouper(self.default, gang, otherwise, self._served_gangs)

    def kinds(self) -> list[GVK]:
        """Return the kinds that have a row."""
        return list(dict.fromkeys(kind for table in self._tables.values() for kind in table))

    def reads(self, kind: GVK) -> Reads:
        """Return which parts of an owner of ``kind`` are read.

        If the rows in the tables differ, the row that reads most applies. If the kind has no row, the whole object is
        read.
        """
        if kind.group_kind in NATIVE:
            return Reads.SPEC
        found = [row.reads for table in self._tables.values() if (row := _row(table, kind)) is not None]
        return max(found, default=Reads.OBJECT)

    def watches(self, kind: GVK) -> bool:
        """Return True if owners of ``kind`` may be watched: the kind has a row or is in ``WATCHED_WITHOUT_ROW``.

        A reference to another kind, such as Secret, does not start a watch of that kind. The answer for Pod is False,
        because the pod controller already watches pods.
        """
        if kind == Pod.gvk:
            return False
        if kind.group_kind in WATCHED_WITHOUT_ROW:
            return True
        return any(_row(table, kind) for table in self._tables.values())


def _row(table: Mapping[GVK, Grouper], kind: GVK) -> Grouper | None:
    return table.get(kind) or table.get(kind._replace(version=ANY_VERSION))


def new_plugins_hub(
    reader: client.Reader,
    options: Settings | None = None,
    *,
    found: Iterable[EntryPoint] | None = None,
) -> PluginsHub:
    """Return a hub with our groupers and the groupers that the entry points in ``found`` provide.

    If ``found`` is None, all installed entry points are used.

    Raises:
        GrouperLoadError: an entry point does not load, fails, returns something other than rows, or provides a kind
            that already has a row.
    """
    default = DefaultGrouper(reader, options)
    tables = {rules: _table(default, rules) for rules in Rules}
    if found is None:
        found = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    for entry in sorted(found, key=lambda entry: entry.name):
        for kind, grouper in _load(entry, default, reader).items():
            for table in tables.values():
                if kind in table:
                    raise GrouperLoadError(
                        f"grouper {entry.name} ({entry.value}): {kind} already has a grouper"
                    )
                table[kind] = grouper
    return PluginsHub(default, tables)


def _table(default: DefaultGrouper, rules: Rules) -> Table:
    """Return our rows for ``rules``."""
    is_oldest = rules is OLDEST
    job_grouper = K8sJobGrouper if is_oldest else WholeJobGrouper
    job_set_grouper = JobSetGrouper if is_oldest else JobSetTreeGrouper
    grove, mpi = GroveGrouper(default), MpiGrouper(default)
    table: Table = {
        GVK("", "v1", "Pod"): PodJobGrouper(default),
        GVK("amlarc.azureml.com", "v1alpha1", "AmlJob"): AmlGrouper(default),
        GVK("apps", "v1", "Deployment"): DeploymentGrouper(default),
        GVK("apps", "v1", "ReplicaSet"): default,
        GVK("apps", "v1", "StatefulSet"): default,
        GVK("batch", "v1", "CronJob"): CronJobGrouper(default),
        GVK("batch", "v1", "Job"): job_grouper(default),
        GVK("egx.nvidia.io", "v1", "SPOTRequest"): SpotRequestGrouper(default),
        GVK("grove.io", "v1alpha1", "PodCliqueSet"): grove,
        GVK("grove.io", "v1alpha1", "PodGangSet"): grove,
        GVK("jobset.x-k8s.io", "v1alpha2", "JobSet"): job_set_grouper(default),
        GVK("kubeflow.org", "v1", "JAXJob"): JaxGrouper(default),
        GVK("kubeflow.org", "v1", "MPIJob"): mpi,
        GVK("kubeflow.org", "v1", "PaddleJob"): PaddleGrouper(default),
        GVK("kubeflow.org", "v1", "PyTorchJob"): PyTorchGrouper(default, rules),
        GVK("kubeflow.org", "v1", "TFJob"): TensorFlowGrouper(default),
        GVK("kubeflow.org", "v1", "XGBoostJob"): XGBoostGrouper(default),
        GVK("kubeflow.org", "v1alpha1", "ScheduledWorkflow"): default,
        GVK("kubeflow.org", "v1beta1", "Notebook"): NotebookGrouper(default),
        GVK("kubeflow.org", "v2beta1", "MPIJob"): mpi,
        GVK("kubevirt.io", "v1", "VirtualMachineInstance"): default,
        GVK("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"): LwsGrouper(default, rules),
        GVK("machinelearning.seldon.io", "v1", "SeldonDeployment"): default,
        GVK("machinelearning.seldon.io", "v1alpha2", "SeldonDeployment"): default,
        GVK("run.ai", "v1", "RunaiJob"): RunaiJobGrouper(default),
        GVK("serving.knative.dev", "v1", "Service"): KnativeGrouper(default),
        GVK("tekton.dev", "v1", "PipelineRun"): default,
        GVK("tekton.dev", "v1", "TaskRun"): default,
        GVK("workspace.devfile.io", "v1alpha2", "DevWorkspace"): default,
    }
    ray = {"RayCluster": RayClusterGrouper, "RayJob": RayJobGrouper, "RayService": RayServiceGrouper}
    for kind, grouper in ray.items():
        table[GVK("ray.io", "v1", kind)] = table[GVK("ray.io", "v1alpha1", kind)] = grouper(default, rules)
    skip = SkipTopOwnerGrouper(default, table, rules)
    table.update(dict.fromkeys((*_WRAPPERS, _DYNAMO if is_oldest else _ANY_DYNAMO), skip))
    table[_NIM_SERVICE] = NimServiceGrouper(default, skip)
    return table


def _load(entry: EntryPoint, default: DefaultGrouper, reader: client.Reader) -> Mapping[GVK, Grouper]:
    """Return an entry point's rows. Its code may raise any exception, including SystemExit."""
    try:
        factory: RowsFactory = entry.load()
        rows = factory(default, reader)
    except (Exception, SystemExit) as error:
        text = raised.text(error)
        reason = f"SystemExit: {text}" if isinstance(error, SystemExit) else text
        raise GrouperLoadError(f"grouper {entry.name} ({entry.value}): {reason}") from error
    if not isinstance(rows, Mapping) or not all(isinstance(each, Grouper) for each in rows.values()):
        raise GrouperLoadError(f"grouper {entry.name} ({entry.value}): not a mapping of kinds to groupers")
    return rows
