# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The webhook configurations of the manager: read from the server, and made to trust its authority."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from controller_runtime import log
from controller_runtime.machinery.errors import ConflictError, ForbiddenError, NotFoundError

from . import bundle
from .cluster import Cluster

# +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=validator.trainer.kubeflow.org,verbs=get;list;watch;update
# +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=defaulter.trainer.kubeflow.org,verbs=get;list;watch;update

_TRIES: Final = 10

_log = log.logger_from("cert-rotation")


class Configurations:
    """The configurations with these names, by kind; those that do not exist or may not be read are skipped."""

    def __init__(self, names: Mapping[type[bundle.Configuration], str]) -> None:
        self._names = names
        self._reported: set[str] = set()

    async def read(self, cluster: Cluster) -> list[bundle.Configuration]:
        """Return the configurations that exist.

        Raises:
            StatusError: the API server refused a request for a reason other than missing permission.
        """
        found = [await self._read(cluster, kind) for kind in self._names]
        return [each for each in found if each is not None]

    async def trust(
        self,
        cluster: Cluster,
        found: list[bundle.Configuration],
        current: bytes,
        served: bytes,
        now: Callable[[], datetime],
    ) -> bool:
        """Return when every hook trusts ``current``, with True if a configuration was written.

        Raises:
            ConflictError: a configuration was changed again and again meanwhile.
        """
        written = [await self._trust(cluster, each, current, served, now) for each in found]
        return any(written)

    async def _read(self, cluster: Cluster, kind: type[bundle.Configuration]) -> bundle.Configuration | None:
        name = self._names[kind]
        try:
            found = await cluster.client.get(kind, ("", name))
        except (NotFoundError, ForbiddenError) as error:
            if isinstance(error, ForbiddenError) and kind is not bundle.ADDED_LATER:
                raise
            if name not in self._reported:
                _log.warning(_PROBLEMS[isinstance(error, ForbiddenError)], kind=kind.gvk.kind, name=name)
                self._reported.add(name)
            return None
        self._reported.discard(name)
        return found

    async def _trust(
        self,
        cluster: Cluster,
        configuration: bundle.Configuration,
        current: bytes,
        served: bytes,
        now: Callable[[], datetime],
    ) -> bool:
        hooks: bundle.Configuration | None = configuration
        for _ in range(_TRIES):
            if hooks is None or not bundle.trust(hooks, current, served, now()):
                return False
            try:
                await cluster.client.update(hooks)
            except (ConflictError, NotFoundError):
                hooks = await self._read(cluster, type(configuration))
                continue
            _log.info("Webhook configuration trusts the authority", name=configuration.name)
            return True
        raise ConflictError(f"{configuration.name}: changed {_TRIES} times while being written")


_PROBLEMS: Final = (
    "The webhook configuration does not exist: its webhooks are not called",
    "The role does not permit reading the webhook configuration: its webhooks are not called",
)
