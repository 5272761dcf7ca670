# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Serves the webhooks with certificates that the manager generates and renews."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import controller_runtime as ctrl
from controller_runtime import healthz

from pkg.apis.config.v1alpha1 import CertManagement

if TYPE_CHECKING:
    from pkg.util import cert

WEBHOOK_CONFIGURATION: Final = "validator.trainer.kubeflow.org"
MUTATING_CONFIGURATION: Final = "defaulter.trainer.kubeflow.org"


class Owner(Protocol):
    """The owner of certificates, such as :class:`pkg.util.cert.Certificates`."""

    async def start(self) -> None:
        """Keep them valid until cancelled."""
        ...

    async def served(self) -> None:
        """Return once there is a certificate."""
        ...

    def check(self) -> None:
        """Raise while there is no valid certificate."""
        ...


class ManagedWebhooks:
    """A runnable that calls ``register`` once there is a certificate; until then it is not ready.

    Controllers do not wait for it: only admission needs a certificate. ``started`` is the readiness
    check from then on.
    """

    name = "webhook certificates"

    def __init__(
        self, certificates: Owner, register: Callable[[], None], started: Callable[[], object]
    ) -> None:
        self._certificates = certificates
        self._register = register
        self._started = started
        self._registered = False

    def need_leader_election(self) -> bool:
        """Return False: every manager answers webhooks."""
        return False

    async def start(self) -> None:
        """Keep the certificates valid; once there is one, register."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._certificates.start)
            await self._certificates.served()
            self._register()
            self._registered = True

    def check(self) -> None:
        """Raise until webhooks are served, and when they can no longer be served."""
        self._certificates.check()
        if not self._registered:
            raise healthz.NotHealthyError("webhooks are not served yet")
        self._started()


def certificates_for(mgr: ctrl.Manager, management: CertManagement) -> cert.Certificates:
    """Return the owner of the certificates in the Configuration."""
    from pkg.util import cert  # slow to load, and not needed with certificates from files

    options = cert.Options(
        namespace=cert.operator_namespace(),
        secret=management.webhook_secret_name or "",
        service=management.webhook_service_name or "",
        configuration=WEBHOOK_CONFIGURATION,
        mutating=MUTATING_CONFIGURATION,
    )
    connect = functools.partial(
        cert.connect,
        mgr.config,
        namespace=options.namespace,
        secret=options.secret,
        configuration=options.configuration,
        mutating=options.mutating,
    )
    return cert.Certificates(options, connect, mgr.event_recorder_for(cert.EVENT_SOURCE))
