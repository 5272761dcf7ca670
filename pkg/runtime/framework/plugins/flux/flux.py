# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Flux: runs the program with the workload manager Flux, which has a broker on each node.

In the pods of the job ``node``, an init container installs Flux in a volume. The trainer's container starts a broker.
On the first node, it also starts the program. The certificate of the brokers is generated once: an existing Secret is
never overwritten. There are three differences from upstream. A TrainJob without ``trainer`` or ``numNodes`` has the
runtime's number of nodes. The certificate is random. A word of the command line that contains spaces stays one word.
"""

from __future__ import annotations

import base64
from typing import Final

from controller_runtime.apis.core.v1 import (
    ConfigMap,
    ConfigMapVolumeSource,
    EmptyDirVolumeSource,
    SecretVolumeSource,
    Volume,
    VolumeMount,
)
from controller_runtime.apis.core.v1 import Container as CoreContainer
from controller_runtime.machinery import Object, field
from controller_runtime.machinery.quantity import IntOrString

from pkg import apply
from pkg.apis.trainer.v1alpha1 import FluxMLPolicySource, Trainer, TrainJob
from pkg.constants import trainer as constants
from pkg.runtime import runtime
from pkg.runtime.framework.interface import (
    CustomValidationPlugin,
)
from pkg.runtime.framework.plugins import ownedfiles, trainernodes
from pkg.runtime.framework.plugins.ownedfiles import FilesPlugin
from pkg.runtime.interface import GeneratedSecret
from pkg.util import trainjob

from . import scripts

_INSTALLER: Final = "flux-installer"
_SCRIPTS_SUFFIX: Final = "-flux-entrypoint"
_SCRIPTS_DIR: Final = "/etc/flux-config"
_SCRIPTS_MODE: Final = 0o755
_ENTRYPOINT: Final = "entrypoint.sh"
_INIT: Final = "init.sh"
_CURVE_SUFFIX: Final = "-flux-curve"
_CURVE_FILE: Final = "curve.cert"
_CURVE_MODE: Final = 0o400
_CURVE_VOLUME: Final = "flux-curve"
_FLUX_VOLUME: Final = "flux-install"
_FLUX_DIR: Final = "/mnt/flux"
_SOFTWARE_VOLUME: Final = "spack-install"
_SOFTWARE_DIR: Final = "/opt/software"
_MEMORY_VOLUME: Final = "shared-memory"
_MEMORY_DIR: Final = "/dev/shm"  # noqa: S108 (a mount path in the pods)

_IMAGE: Final = "FLUX_VIEW_IMAGE"
_DEVICE: Final = "FLUX_NETWORK_DEVICE"
_QUEUE_POLICY: Final = "FLUX_QUEUE_POLICY"
_SETTINGS: Final = {
    _IMAGE: "ghcr.io/converged-computing/flux-view-ubuntu:tag-jammy",
    _DEVICE: "eth0",
    _QUEUE_POLICY: "fcfs",
}
"""Environment variables of the trainer's container that configure this plugin, and their defaults."""

_B85: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85: Final = bytes.maketrans(_B85, _Z85)

_TRAINER: Final = field.Path("spec").child("trainer")


def new_certificate(name: str) -> str:
    """Return the certificate with which the brokers of a cluster authenticate each other: a CURVE key pair of ZeroMQ.

    The certificate contains ``name``.
    """
    from cryptography.hazmat.primitives.asymmetric import x25519  # slow to load, and only Flux needs it

    key = x25519.X25519PrivateKey.generate()
    return (
        "#  ZeroMQ CURVE Secret Certificate\n\n"
        f'metadata\n    name = "{name}"\n'
        f'curve\n    public-key = "{z85(key.public_key().public_bytes_raw())}"\n'
        f'    secret-key = "{z85(key.private_bytes_raw())}"\n'
    )


def z85(data: bytes) -> str:
    """Return data in the encoding Z85. The length of the data must be a multiple of four."""
    return base64.b85encode(data).translate(_TO_Z85).decode("ascii")


# +kubebuilder:rbac:groups="",resources=secrets,verbs=create;get;list;watch;update;patch
# +kubebuilder:rbac:groups="",resources=configmaps,verbs=create;get;list;watch;update;patch
class Flux(FilesPlugin, CustomValidationPlugin):
    """Serves runtimes with a flux policy."""

    name = "Flux"
    serves = "mlPolicy.flux"

    async def validate(
        self, info: runtime.Info, old: TrainJob | None, new: TrainJob
    ) -> tuple[list[str], field.ErrorList]:
        """Check that the number of processes per node is positive, and that the installer's name is not used."""
        del old
        errors = field.ErrorList()
        policy = info.ml_policy.flux
        if policy is None:
            return [], errors
        wanted, path = _tasks(policy, new), _TRAINER.child("numProcPerNode")
        if isinstance(wanted, str):
            errors.append(field.invalid(path, wanted, "must have an int value for Flux TrainJob"))
        elif wanted is not None and wanted < 1:
            detail = "must be greater than or equal to 1 for Flux TrainJob"
            errors.append(field.invalid(path, wanted, detail))
        node = info.find_pod_set_by_name(constants.NODE)
        for container in node.init_containers if node is not None else ():
            if container.name == _INSTALLER:
                detail = f"InitContainer '{_INSTALLER}' is reserved"
                errors.append(field.invalid(_TRAINER.child("initContainers"), _INSTALLER, detail))
        return [], errors

    def enforce_ml_policy(self, info: runtime.Info, train_job: TrainJob) -> None:
        """Set the number of nodes, the trainer's command, and the installer and volumes of the job ``node``."""
        if info.ml_policy.flux is None:
            return
        trainernodes.with_count(info, train_job)
        template, trainer = _template_container(info), train_job.spec.trainer or Trainer()
        command = template.command if trainer.command is None else trainer.command
        # These words only show the command to readers of the pod: the script contains its own copy.
        shown = " ".join([*(command or ()), *(trainer.args or ())]).strip()
        # What the TrainJob does not set comes from the template.
        args = template.args if trainer.args is None else trainer.args
        info.wrapped_command = [*(command or ()), *(args or ())]
        info.trainer_command = ["/bin/bash", f"{_SCRIPTS_DIR}/{_ENTRYPOINT}", shown]
        info.trainer_args = template.args or []
        image = _settings(info, train_job)[_IMAGE]
        for node in info.template_spec.pod_sets:
            if node.name == constants.NODE:
                _install(node, train_job.name + _SCRIPTS_SUFFIX, train_job.name + _CURVE_SUFFIX, image)

    async def build(self, info: runtime.Info, train_job: TrainJob) -> list[Object]:
        """Return the ConfigMap with the scripts. If the Secret with the certificate is missing, return it, too.

        Raises:
            ChildConflictError: a Secret of that name exists, and the TrainJob does not control that Secret.
            StatusError: the Secret could not be read. A missing Secret is not an error.
        """
        policy = info.ml_policy.flux
        if policy is None:
            return []
        self._needed.set()
        cluster = _cluster(info, policy, train_job)
        data = {
            _ENTRYPOINT: scripts.entrypoint(cluster, info.wrapped_command),
            _INIT: scripts.init_script(cluster),
        }
        objects: list[Object] = [
            ConfigMap(metadata=trainjob.child_metadata(train_job, _SCRIPTS_SUFFIX), data=data)
        ]
        if not await ownedfiles.has_secret(self._client, train_job, _CURVE_SUFFIX):
            text = new_certificate(train_job.name).encode()
            certificate = {_CURVE_FILE: base64.b64encode(text).decode("ascii")}
            objects.append(
                GeneratedSecret(metadata=trainjob.child_metadata(train_job, _CURVE_SUFFIX), data=certificate)
            )
        return objects


def _cluster(info: runtime.Info, policy: FluxMLPolicySource, train_job: TrainJob) -> scripts.Cluster:
    tasks, settings = _tasks(policy, train_job), _settings(info, train_job)
    nodes = (train_job.spec.trainer or Trainer()).num_nodes
    if nodes is None:
        pod_set = info.find_pod_set_by_ancestor(constants.ANCESTOR_TRAINER)
        nodes = 1 if pod_set is None else pod_set.count
    return scripts.Cluster(
        job=train_job.name,
        subdomain=trainernodes.subdomain(info, train_job),
        namespace=train_job.namespace,
        nodes=nodes,
        tasks=tasks if isinstance(tasks, int) else 1,
        gpus=runtime.get_num_gpu_per_node(runtime.resources_per_node(info, train_job, merged=True)),
        device=settings[_DEVICE],
        queue_policy=settings[_QUEUE_POLICY],
    )


def _tasks(policy: FluxMLPolicySource, train_job: TrainJob) -> IntOrString | None:
    wanted = (train_job.spec.trainer or Trainer()).num_proc_per_node
    return policy.num_proc_per_node if wanted is None else wanted


def _settings(info: runtime.Info, train_job: TrainJob) -> dict[str, str]:
    """Return the settings.

    The TrainJob's variables take precedence over the runtime's variables, which take precedence over the defaults.
    """
    container, own = trainernodes.container(info), (train_job.spec.trainer or Trainer()).env
    variables = [*((container.env if container is not None else None) or ()), *(own or ())]
    settings = dict(_SETTINGS)
    for env in variables:
        if env.name in settings and env.value_from is None:
            settings[env.name] = env.value or ""
    return settings


def _template_container(info: runtime.Info) -> CoreContainer:
    """Return the trainer's container in the template, or an empty one."""
    for job in info.replicated_jobs:
        if runtime.ancestor_of(job) == constants.ANCESTOR_TRAINER:
            return next(iter(runtime.containers_of(job, constants.NODE)), CoreContainer())
    return CoreContainer()


def _install(node: runtime.PodSet, config_map: str, secret: str, image: str) -> None:
    """Add the volumes and the installer to the pods, and the volume mounts to the containers ``node``."""
    node.volumes = apply.upsert_volumes(node.volumes, _volumes(config_map, secret))
    flux = VolumeMount(name=_FLUX_VOLUME, mount_path=_FLUX_DIR)
    files = VolumeMount(name=config_map, mount_path=_SCRIPTS_DIR, read_only=True)
    node.init_containers.append(
        runtime.Container(
            name=_INSTALLER,
            image=image,
            command=["/bin/bash", f"{_SCRIPTS_DIR}/{_INIT}"],
            volume_mounts=[flux, files],
        )
    )
    mounts = [
        flux,
        VolumeMount(name=_SOFTWARE_VOLUME, mount_path=_SOFTWARE_DIR),
        files,
        VolumeMount(name=_CURVE_VOLUME, mount_path="/curve", read_only=True),
        VolumeMount(name=_MEMORY_VOLUME, mount_path=_MEMORY_DIR, read_only=True),
    ]
    for container in node.containers:
        if container.name == constants.NODE:
            container.volume_mounts = apply.upsert_volume_mounts(container.volume_mounts, mounts)


def _volumes(config_map: str, secret: str) -> list[Volume]:
    scripts_source = ConfigMapVolumeSource(name=config_map, default_mode=_SCRIPTS_MODE)
    curve_source = SecretVolumeSource(secret_name=secret, default_mode=_CURVE_MODE)
    return [
        Volume(name=_SOFTWARE_VOLUME, empty_dir=EmptyDirVolumeSource()),
        Volume(name=_FLUX_VOLUME, empty_dir=EmptyDirVolumeSource()),
        Volume(name=config_map, config_map=scripts_source),
        Volume(name=_MEMORY_VOLUME, empty_dir=EmptyDirVolumeSource(medium="Memory")),
        Volume(name=_CURVE_VOLUME, secret=curve_source),
    ]
