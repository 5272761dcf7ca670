# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""TrainJobStatus: lets the trainer's pods report progress to the status server.

The pods get the address of the server, a token for the TrainJob's status, and the certificate authority (CA) of the
server. The CA is copied from the Secret of the webhooks' certificates to a ConfigMap of the TrainJob. When the CA
changes, the ConfigMaps of unfinished TrainJobs are updated. The plugin is registered if the feature gate TrainJobStatus
is enabled.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from controller_runtime import cache
from controller_runtime.apis.core.v1 import (
    ConfigMap,
    ConfigMapProjection,
    EnvVar,
    KeyToPath,
    ProjectedVolumeSource,
    Secret,
    ServiceAccountTokenProjection,
    Volume,
    VolumeMount,
    VolumeProjection,
)
from controller_runtime.client import Reader
from controller_runtime.machinery import NamespacedName, Object, metadata_only
from controller_runtime.machinery.errors import StatusError
from controller_runtime.rest import RestError

from pkg import apply, statusserver
from pkg.apis.config.v1alpha1 import Configuration, defaulted
from pkg.apis.trainer.v1alpha1 import TrainJob
from pkg.constants import trainer as constants
from pkg.runtime.framework.interface import (
    ComponentBuilderPlugin,
    EnforceMLPolicyPlugin,
    PluginError,
    WatchExtensionPlugin,
)
from pkg.runtime.framework.plugins import ownedfiles
from pkg.runtime.interface import IndependentConfigMap, ReconcilerBuilder
from pkg.runtime.runtime import Info
from pkg.util import cert, trainjob

if TYPE_CHECKING:
    from controller_runtime import event
    from controller_runtime.builder import Builder
    from controller_runtime.cache import Cache
    from controller_runtime.client import Client
    from controller_runtime.reconcile import Request

ENV_URL: Final = "KUBEFLOW_TRAINER_SERVER_URL"
ENV_CA_CERT: Final = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
ENV_TOKEN: Final = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable

_MOUNT_PATH: Final = "/var/run/secrets/kubeflow/trainer"
_CA_CERT: Final = "ca.crt"
_TOKEN: Final = "token"  # noqa: S105 - the name of a file
_VOLUME: Final = "kubeflow-trainer-token"
_TOKEN_SECONDS: Final = 3600
_CONFIG_MAP_SUFFIX: Final = "-tls-config"


def cache_options(cfg: Configuration) -> dict[type[Object], cache.ByObject]:
    """Return the cache options for the plugin's reads: the content of one Secret, and the metadata of all Secrets."""
    key = _secret_key(cfg)
    one = cache.ByObject(namespaces=(key.namespace,), fields={"metadata.name": key.name})
    return {Secret: one, metadata_only(Secret): cache.ByObject()}


class Status(EnforceMLPolicyPlugin, ComponentBuilderPlugin, WatchExtensionPlugin):
    """Serves all runtimes."""

    name = "TrainJobStatus"

    def __init__(self, client: Reader) -> None:
        self._client = client
        self._namespace = cert.operator_namespace()
        self.configure(defaulted())

    def configure(self, cfg: Configuration) -> None:
        """Read the names of the server and its Secret from the Configuration."""
        host = f"{cfg.cert_management.webhook_service_name}.{self._namespace}.svc"
        self._server = f"https://{host}:{cfg.status_server.port}"
        self._secret = _secret_key(cfg, self._namespace)

    def enforce_ml_policy(self, info: Info, train_job: TrainJob) -> None:
        """Add address, token and CA to the trainer's containers. Variables that the TrainJob sets are kept."""
        pod_set = info.find_pod_set_by_ancestor(constants.ANCESTOR_TRAINER)
        if pod_set is None:
            return
        own = {env.name: env for env in (train_job.spec.trainer and train_job.spec.trainer.env) or ()}
        added = self._environment(train_job)
        mount = VolumeMount(name=_VOLUME, mount_path=_MOUNT_PATH, read_only=True)
        for container in pod_set.containers:
            # The plugins of frameworks add the TrainJob's variables to this container, before or after this plugin.
            held = own if container.name == constants.NODE else {}
            env = [apply.env_var(held[each.name]) if each.name in held else each for each in added]
            container.env = apply.upsert_env_vars(container.env, env)
            container.volume_mounts = apply.upsert_volume_mounts(container.volume_mounts, [mount])
        pod_set.volumes = apply.upsert_volumes(pod_set.volumes, [_volume(train_job)])

    async def build(self, info: Info, train_job: TrainJob) -> list[Object]:
        """Return the ConfigMap with the CA.

        Raises:
            PluginError: the Secret cannot be read, or has no CA.
        """
        del info
        try:
            secret = await self._client.get(Secret, self._secret)
        except (StatusError, RestError, cache.CacheError) as error:
            raise PluginError(f"failed to look up status server tls secret: {error}") from error
        authority = _decoded(secret, _CA_CERT)
        if not authority:
            raise PluginError("failed to find status server ca.crt in tls secret")
        if former := _decoded(secret, cert.FORMER):
            # Replicas switch to the new CA one after the other, and the files in pods are updated later.
            authority = f"{authority.rstrip()}\n{former}"
        metadata = trainjob.child_metadata(train_job, _CONFIG_MAP_SUFFIX)
        return [IndependentConfigMap(metadata=metadata, data={_CA_CERT: authority})]

    def reconciler_builders(self) -> list[ReconcilerBuilder]:
        """Watch the TrainJobs' ConfigMaps, and the Secret with the CA."""
        return [_watch_config_maps, self._watch_secret]

    def _watch_secret(self, builder: Builder, client: Client, _cache: Cache) -> Builder:
        from controller_runtime import handler, predicate, reconcile  # rendering loads no controllers

        def changed(evt: event.UpdateEvent[Secret]) -> bool:
            before, after = evt.old.data or {}, evt.new.data or {}
            return any(before.get(key) != after.get(key) for key in (_CA_CERT, cert.FORMER))

        async def every(_secret: Secret) -> list[Request]:
            return [reconcile.Request.for_object(job) for job in await client.list(TrainJob)]

        # At the start every TrainJob is reconciled anyway.
        picked = predicate.Funcs[Secret](
            create=lambda evt: not evt.is_in_initial_list, update=changed, delete=lambda _: False
        )
        return builder.watches(Secret, handler.enqueue_requests_from_map_func(every), predicates=[picked])

    def _environment(self, train_job: TrainJob) -> list[EnvVar]:
        path = statusserver.status_url(train_job.namespace, train_job.name)
        return [
            EnvVar(name=ENV_URL, value=self._server + path),
            EnvVar(name=ENV_CA_CERT, value=f"{_MOUNT_PATH}/{_CA_CERT}"),
            EnvVar(name=ENV_TOKEN, value=f"{_MOUNT_PATH}/{_TOKEN}"),
        ]


# +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch
# +kubebuilder:rbac:groups="",resources=configmaps,verbs=create;get;list;watch;update;patch
def _watch_config_maps(builder: Builder, _client: Client, _cache: Cache) -> Builder:
    return ownedfiles.watch(builder, ConfigMap, suffix=_CONFIG_MAP_SUFFIX)


def _secret_key(cfg: Configuration, namespace: str = "") -> NamespacedName:
    name = cfg.cert_management.webhook_secret_name or ""
    return NamespacedName(namespace or cert.operator_namespace(), name)


def _decoded(secret: Secret, key: str) -> str:
    """Return a value of the Secret, or an empty text if the value is missing or is not the base64 form of a text."""
    try:
        return base64.b64decode((secret.data or {}).get(key) or "", validate=True).decode()
    except ValueError:  # also for characters beyond ASCII, and for bytes that are not UTF-8
        return ""


def _volume(train_job: TrainJob) -> Volume:
    token = ServiceAccountTokenProjection(
        audience=statusserver.token_audience(train_job.namespace, train_job.name),
        expiration_seconds=_TOKEN_SECONDS,
        path=_TOKEN,
    )
    authority = ConfigMapProjection(
        name=train_job.name + _CONFIG_MAP_SUFFIX, items=[KeyToPath(key=_CA_CERT, path=_CA_CERT)]
    )
    sources = [VolumeProjection(service_account_token=token), VolumeProjection(config_map=authority)]
    return Volume(name=_VOLUME, projected=ProjectedVolumeSource(sources=sources))
