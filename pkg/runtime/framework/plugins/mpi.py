# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""MPI: the launcher connects to every node of a host file by SSH, with keys generated for the TrainJob.

The plugin changes the template's jobs ``launcher`` and ``node``, and their containers ``node``. Only Open MPI is
supported. The keys are generated once: an existing Secret is never overwritten. Users may bring their own keys in a
Secret with the same name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller_runtime.apis.core.v1 import (
    ConfigMap,
    ConfigMapVolumeSource,
    EnvVar,
    KeyToPath,
    Volume,
    VolumeMount,
)
from controller_runtime.client import Reader
from controller_runtime.machinery import Object, field
from controller_runtime.machinery.quantity import int_value

from pkg import apply
from pkg.apis.config.v1alpha1 import Configuration
from pkg.apis.trainer.v1alpha1 import MPIMLPolicySource, TrainJob
from pkg.constants import trainer as constants
from pkg.runtime import runtime
from pkg.runtime.framework.interface import (
    CustomValidationPlugin,
    PluginError,
)
from pkg.util import trainjob

from . import ownedfiles, sshkeys
from .ownedfiles import FilesPlugin
from .sshkeys import SSHKeys, new_ssh_keys

_OPEN_MPI: Final = "OpenMPI"
_DEFAULT_KEY_DIR: Final = "/root/.ssh"

_HOST_FILE_SUFFIX: Final = "-mpi-hostfile"
_HOST_FILE: Final = "hostfile"
_HOST_FILE_DIR: Final = "/etc/mpi"
_HOST_FILE_MODE: Final = 0o444
_HOST_FILE_VOLUME: Final = "mpi-hostfile"
_HOST_FILE_LIMIT: Final = 1 << 20
"""Maximum bytes of a ConfigMap that the API server accepts."""

_ENV_HOST_FILE: Final = "OMPI_MCA_orte_default_hostfile"
_ENV_HOST_NAMES: Final = "OMPI_MCA_orte_keep_fqdn_hostnames"
_ENV_SLOTS: Final = "OMPI_MCA_orte_set_default_slots"
_ENV_RSH_ARGS: Final = "OMPI_MCA_plm_rsh_args"
_RESERVED: Final = frozenset({_ENV_HOST_FILE, _ENV_HOST_NAMES, _ENV_SLOTS, _ENV_RSH_ARGS})

_TRAINER: Final = field.Path("spec").child("trainer")


class UnsupportedMPIImplementationError(PluginError):
    """The runtime's MPI implementation is not supported."""


class HostFileTooLargeError(PluginError):
    """The host file of a TrainJob's nodes does not fit into a ConfigMap."""


# +kubebuilder:rbac:groups="",resources=secrets,verbs=create;get;list;watch;update;patch
# +kubebuilder:rbac:groups="",resources=configmaps,verbs=create;get;list;watch;update;patch
class MPI(FilesPlugin, CustomValidationPlugin):
    """Serves runtimes with an mpi policy."""

    name = "MPI"
    serves = "mlPolicy.mpi"

    def __init__(self, client: Reader, new_keys: Callable[[], SSHKeys] = new_ssh_keys) -> None:
        super().__init__(client)
        self._new_keys = new_keys
        self._second_generation = False

    def configure(self, cfg: Configuration) -> None:
        """Set the generation.

        In the second generation, the plugin restricts the modes of key files, reserves variables and merges resources.
        """
        self._second_generation = cfg.second_generation

    def why_skipped(self, info: runtime.Info, train_job: TrainJob) -> str | None:
        """Return a reason if the mpi policy is missing."""
        del train_job
        return "the runtime has no mlPolicy.mpi" if info.ml_policy.mpi is None else None

    async def validate(
        self, info: runtime.Info, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Check processes per node and reserved variables. If the launcher trains too, check the number of nodes."""
        errors = field.ErrorList()
        policy, trainer = info.ml_policy.mpi, new.spec.trainer
        if policy is None or trainer is None:
            return [], errors
        if isinstance(trainer.num_proc_per_node, str):
            detail = "must have an int value for MPI TrainJob"
            errors.append(field.invalid(_TRAINER.child("numProcPerNode"), trainer.num_proc_per_node, detail))
        if policy.run_launcher_as_node and trainer.num_nodes is not None and trainer.num_nodes > 1:
            jobs = {pod_set.name for pod_set in info.template_spec.pod_sets}
            if not jobs >= {constants.LAUNCHER, constants.NODE}:
                detail = (
                    "must have 1 when MPI trainingRuntime with enabled runLauncherAsNode "
                    "does not have either launcher and node"
                )
                errors.append(field.invalid(_TRAINER.child("numNodes"), trainer.num_nodes, detail))
        reserved = {env.name for env in trainer.env or ()} & _RESERVED
        if self._second_generation and reserved:
            detail = f"must not have reserved envs, invalid envs configured: [{' '.join(sorted(reserved))}]"
            errors.append(field.invalid(_TRAINER.child("env"), trainer.env, detail))
        return [], errors

    def enforce_ml_policy(self, info: runtime.Info, train_job: TrainJob) -> None:
        """Set the number of nodes and their slots, and add keys, host file and environment to the pods.

        Raises:
            UnsupportedMPIImplementationError: the template has a launcher, and the implementation is not Open MPI.
        """
        policy = info.ml_policy.mpi
        if policy is None:
            return
        _set_count(info, policy, train_job)
        slots = self._slots(info, policy, train_job)
        _set_slots(info, policy, slots)
        for pod_set in info.template_spec.pod_sets:
            if pod_set.name not in (constants.NODE, constants.LAUNCHER):
                continue
            launches = pod_set.name == constants.LAUNCHER
            volumes = _volumes(train_job.name, launches, restricted=self._second_generation)
            pod_set.volumes = apply.upsert_volumes(pod_set.volumes, volumes)
            for container in pod_set.containers:
                if container.name != constants.NODE:
                    continue
                container.volume_mounts = apply.upsert_volume_mounts(
                    container.volume_mounts, _mounts(policy, launches)
                )
                if launches:
                    container.env = apply.upsert_env_vars(container.env, _environment(policy, slots))

    def _slots(self, info: runtime.Info, policy: MPIMLPolicySource, train_job: TrainJob) -> int:
        """Return the number of processes per node.

        The TrainJob's number takes precedence over the runtime's. If the TrainJob sets no number and the runtime's is 1
        or unset, one process is started for each requested GPU.
        """
        trainer = train_job.spec.trainer
        if trainer is not None and trainer.num_proc_per_node is not None:
            return int_value(trainer.num_proc_per_node)
        slots = 1 if policy.num_proc_per_node is None else policy.num_proc_per_node
        if slots != 1:
            return slots
        resources = runtime.resources_per_node(info, train_job, merged=self._second_generation)
        return max(slots, runtime.get_num_gpu_per_node(resources))

    async def build(self, info: runtime.Info, train_job: TrainJob) -> list[Object]:
        """Return the ConfigMap with the host file. If the Secret with the keys is missing, return it, too.

        Raises:
            HostFileTooLargeError: the names of all nodes do not fit into a ConfigMap.
            PredecessorError: an earlier TrainJob of the same name controls the Secret.
            StatusError: the Secret could not be read. A missing Secret is not an error.
        """
        policy = info.ml_policy.mpi
        if policy is None:
            return []
        self._needed.set()
        objects: list[Object] = []
        if not await ownedfiles.has_secret(self._client, train_job, sshkeys.SUFFIX, may_be_foreign=True):
            objects.append(sshkeys.secret(train_job, self._new_keys()))
        metadata = trainjob.child_metadata(train_job, _HOST_FILE_SUFFIX)
        data = {_HOST_FILE: _host_file(info, policy, train_job)}
        return [*objects, ConfigMap(metadata=metadata, data=data)]


def _is_open_mpi(policy: MPIMLPolicySource) -> bool:
    return policy.mpi_implementation in (None, _OPEN_MPI)


def _set_count(info: runtime.Info, policy: MPIMLPolicySource, train_job: TrainJob) -> None:
    """Set the number of pods of the job ``node`` to the TrainJob's ``numNodes``.

    If the launcher trains too, it is one of these nodes. The job ``node`` then has one pod less, but at least one.
    """
    trainer = train_job.spec.trainer
    node = info.find_pod_set_by_name(constants.NODE)
    if trainer is None or trainer.num_nodes is None or node is None:
        return
    node.count = max(trainer.num_nodes - 1, 1) if policy.run_launcher_as_node else trainer.num_nodes


def _set_slots(info: runtime.Info, policy: MPIMLPolicySource, slots: int) -> None:
    """Store the slots in a copy of the policy, for the stage that builds the objects."""
    changed = policy.model_copy(update={"num_proc_per_node": slots})
    info.runtime_policy.ml_policy_source = info.ml_policy.model_copy(update={"mpi": changed})


def _volumes(job: str, launches: bool, *, restricted: bool) -> list[Volume]:
    """Return the volumes of a pod. With ``restricted``, the modes of the key files are set."""
    keys = sshkeys.volume(job, restricted=restricted)
    if not launches:
        return [keys]
    files = [KeyToPath(key=_HOST_FILE, path=_HOST_FILE, mode=_HOST_FILE_MODE)]
    source = ConfigMapVolumeSource(name=job + _HOST_FILE_SUFFIX, items=files)
    return [keys, Volume(name=_HOST_FILE_VOLUME, config_map=source)]


def _mounts(policy: MPIMLPolicySource, launches: bool) -> list[VolumeMount]:
    path = _DEFAULT_KEY_DIR if policy.ssh_auth_mount_path is None else policy.ssh_auth_mount_path
    keys = VolumeMount(name=sshkeys.VOLUME, mount_path=path)
    return [keys, VolumeMount(name=_HOST_FILE_VOLUME, mount_path=_HOST_FILE_DIR)] if launches else [keys]


def _environment(policy: MPIMLPolicySource, slots: int) -> list[EnvVar]:
    if not _is_open_mpi(policy):
        # Upstream prints an address instead of the name.
        raise UnsupportedMPIImplementationError(
            f'MPI implementation for "{policy.mpi_implementation}" doesn\'t supported'
        )
    return [
        EnvVar(name=_ENV_HOST_FILE, value=f"{_HOST_FILE_DIR}/{_HOST_FILE}"),
        EnvVar(name=_ENV_HOST_NAMES, value="true"),
        EnvVar(name=_ENV_SLOTS, value=str(slots)),
        EnvVar(name=_ENV_RSH_ARGS, value="-o ConnectionAttempts=10"),
    ]


def _host_file(info: runtime.Info, policy: MPIMLPolicySource, train_job: TrainJob) -> str:
    if not _is_open_mpi(policy):
        return ""
    slots = 1 if policy.num_proc_per_node is None else policy.num_proc_per_node
    lines: list[str] = []
    size = 0
    for pod_set in info.template_spec.pod_sets:
        if pod_set.name != constants.NODE and not (
            policy.run_launcher_as_node and pod_set.name == constants.LAUNCHER
        ):
            continue
        for endpoint in pod_set.endpoints:
            lines.append(f"{endpoint} slots={slots}\n")
            size += len(lines[-1])
            if size > _HOST_FILE_LIMIT:
                raise HostFileTooLargeError(
                    f"trainjob {train_job.key}: the host file of {pod_set.count} nodes is larger than 1 MiB"
                )
    return "".join(lines)
