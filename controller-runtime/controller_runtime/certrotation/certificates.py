# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Certificates: the runnable that keeps the webhooks' certificate valid, trusted and served.

A pass reads the Secret and repairs it if necessary, adds the Secret's authority to the webhook configurations, and
serves with the Secret's certificate. A new authority is used only after it has been in the webhook configurations for
``propagation_delay`` seconds. Until then, and after any error, the last good certificate is served from memory.

Replicas that start together end up with the same authority. If several replicas write the Secret, only the first one
succeeds. The others get a conflict, because the Secret has changed since they read it. They begin another pass, which
reads the authority of the first one. No admission fails because of a rotation, provided that each API server observes
changes of its webhook configurations within ``propagation_delay`` seconds.
"""

from __future__ import annotations

import base64
import functools
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Final

import anyio
import anyio.to_thread
from prometheus_client.metrics import Counter, Gauge

from controller_runtime import healthz, log, manager, metrics, recorder, rest
from controller_runtime.apis.core.v1 import Secret
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.machinery import NamespacedName
from controller_runtime.machinery.backoff import exponential
from controller_runtime.machinery.errors import (
    AlreadyExistsError,
    ConflictError,
    NotFoundError,
    StatusError,
)
from controller_runtime.serving.certificates import SKEW
from controller_runtime.webhook import server_context

from . import configurations, pki
from .cluster import Cluster, Options, connect
from .pki import Material, Verdict

EVENT_SOURCE: Final = "webhook-certificates"
CREATED: Final = "WebhookCertificatesCreated"
RENEWED: Final = "WebhookCertificatesRenewed"
REPAIRED: Final = "WebhookCertificatesRepaired"

_BREATH: Final = 0.1
"""Seconds that a pass waits after a change, so that several changes cause only one pass."""
_RETRY: Final = (0.5, 30.0)
_EXPECTED: Final = (StatusError, rest.RestError, OSError)
"""OSError is expected, because loading a certificate needs a file descriptor, and all of them may be in use."""

_log = log.logger_from("cert-rotation")


class Metrics:
    """The metrics of certificates. All their names begin with ``prefix``, e.g. ``my_operator_webhook``."""

    def __init__(self, prefix: str) -> None:
        self.issued: Final = Counter(
            f"{prefix}_certificates_issued_total",
            "Certificates that this replica put into the Secret, by reason: created, renewed, repaired",
            ["reason"],
            registry=metrics.REGISTRY,
        )
        self.failures: Final = Counter(
            f"{prefix}_certificates_failures_total",
            "Passes in which the Secret or the webhook configuration could not be brought into order",
            registry=metrics.REGISTRY,
        )
        self.expiry: Final = Gauge(
            f"{prefix}_certificate_expiry_timestamp_seconds",
            "Expiry of the certificate that this replica serves with, and of its authority",
            ["certificate"],
            registry=metrics.REGISTRY,
        )


@functools.lru_cache(maxsize=1)
def default_metrics() -> Metrics:
    """Return the metrics of programs that name none. They are registered at the first call."""
    return Metrics("controller_runtime_webhook")


async def in_thread(make: Callable[..., Material], *args: object) -> Material:
    """Run ``make``, which generates keys, in a thread, and return its result."""
    return await anyio.to_thread.run_sync(make, *args)


class Certificates:
    """One object per process; provides the webhook server's TLS context (:meth:`context`).

    ``connect`` opens the connection to the cluster, and ``events`` records changes of the Secret. ``when_served`` is
    called once, when the first certificate is served.
    """

    name = "webhook certificates"

    def __init__(
        self,
        options: Options,
        connect: Callable[[], AbstractAsyncContextManager[Cluster]],
        events: recorder.EventRecorder,
        *,
        when_served: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        make: Callable[..., Awaitable[Material]] = in_thread,
        metrics: Metrics | None = None,
    ) -> None:
        self._options = options
        self._connect = connect
        self._events = events
        self._when_served = when_served
        self._now = now
        self._make = make
        self._metrics = metrics or default_metrics()
        self._context = server_context()
        self._served: Material | None = None
        self._proved: tuple[Material, list[str]] | None = None
        self._trusted: tuple[object, float] = (None, 0.0)
        self._ready = anyio.Event()
        self._changed = anyio.Event()
        self._problem = "the Secret has not been read yet"

    def need_leader_election(self) -> bool:
        """Return False: every replica answers webhooks."""
        return False

    def context(self) -> ssl.SSLContext:
        """Return the TLS context, which has a certificate after :meth:`served`.

        After each renewal, another object is returned.
        """
        return self._context

    async def served(self) -> None:
        """Wait until there is a certificate that the API server trusts."""
        await self._ready.wait()

    def check(self) -> None:
        """Raise NotHealthyError if the certificate is missing or has expired."""
        if self._served is None:
            raise healthz.NotHealthyError(f"certificates are not ready: {self._problem}")
        if pki.certificate(self._served.tls_crt).not_valid_after_utc <= self._now():
            raise healthz.NotHealthyError(f"the certificate has expired: {self._problem}")

    async def start(self) -> None:
        """Keep the certificates valid until cancelled."""
        async with self._connect() as cluster, anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.watch, self._wake)
            failed = 0
            while True:
                self._changed = anyio.Event()
                try:
                    wait = await self.run_pass(cluster)
                    failed = 0
                except (AlreadyExistsError, ConflictError) as error:  # another replica or client was faster
                    self._problem = log.describe(error)
                    wait = _BREATH
                except _EXPECTED as error:
                    self._metrics.failures.inc()
                    self._problem = log.describe(error)
                    _log.error("Webhook certificates are not in order", error=error)
                    wait = exponential(failed, *_RETRY)
                    failed += 1
                with anyio.move_on_after(wait):
                    await self._changed.wait()
                    await anyio.sleep(_BREATH)

    async def run_pass(self, cluster: Cluster) -> float:
        """Do one pass, and return the number of seconds until the next pass.

        Raises:
            StatusError: the API server refused a request.
            RestError: the API server was unreachable.
            OSError: the certificate cannot be loaded at the moment.
        """
        options = self._options
        configs = await configurations.read(cluster.client, options)
        names = configurations.server_names(options.service, options.namespace, configs)
        material = await self._valid_material(cluster, names)
        await self._trust(cluster, configs, material)
        left = self._settling(material)
        if left > 0:
            return left
        self._serve(material)
        until_due = (pki.renewal(material) - self._now()).total_seconds()
        return max(_BREATH, min(options.period, until_due))

    def _wake(self) -> None:
        self._changed.set()

    # The Secret.

    async def _valid_material(self, cluster: Cluster, names: list[str]) -> Material:
        """Return the content of the Secret, after repairing it if necessary."""
        key = NamespacedName(self._options.namespace, self._options.secret)
        write = cluster.client.update
        try:
            secret = await cluster.client.get(Secret, key)
        except NotFoundError:
            secret = Secret(metadata=ObjectMeta(name=key.name, namespace=key.namespace), type="Opaque")
            write = cluster.client.create
        now = self._now()
        stored = Material.from_data(secret.data or {})
        verdict = self._inspect(stored, names, now)
        if verdict and not self._overlap_is_over(secret, stored, now):
            return stored
        if verdict:
            made = stored
        elif verdict.authority:
            made = await self._make(pki.issue, names, now, self._options.subjects)
        else:
            made = await self._make(pki.reissue, stored, names, now, self._options.subjects)
        secret.data = self._data(secret, stored, made, now)
        secret = await write(secret)
        if not verdict:
            self._report(secret, verdict, first=not stored)
        return made

    def _data(self, secret: Secret, stored: Material, made: Material, now: datetime) -> dict[str, str]:
        """Return the Secret's new data. During the overlap, the former authority is stored beside a new authority."""
        data = {**(secret.data or {}), **made.to_data()}
        if made.ca_crt == stored.ca_crt:
            if self._overlap_is_over(secret, stored, now):
                del data[pki.FORMER]
            return data
        data.pop(pki.FORMER, None)
        served = self._served.ca_crt if self._served is not None else b""
        if former := pki.former_authority(stored.ca_crt, served, now=now):
            data[pki.FORMER] = base64.b64encode(former).decode()
        return data

    @staticmethod
    def _overlap_is_over(secret: Secret, stored: Material, now: datetime) -> bool:
        """Return True if the former authority is still stored but no replica serves with its certificate any longer."""
        if pki.FORMER not in (secret.data or {}):
            return False
        return now - pki.certificate(stored.ca_crt).not_valid_before_utc > configurations.OVERLAP + SKEW

    def _inspect(self, stored: Material, names: list[str], now: datetime) -> Verdict:
        if self._proved == (stored, names) and now < pki.renewal(stored):
            return Verdict()
        verdict = pki.inspect(stored, names, now)
        if verdict:
            self._proved = (stored, names)
        return verdict

    def _report(self, secret: Secret, verdict: Verdict, *, first: bool) -> None:
        """Report why this replica put a new certificate into the Secret. ``first``: there was none before."""
        what = "authority and serving certificate" if verdict.authority else "serving certificate"
        if first:
            reason, label, kind, why = CREATED, "created", recorder.NORMAL, "there were none"
        elif verdict.due:
            reason, label, kind, why = RENEWED, "renewed", recorder.NORMAL, str(verdict)
        else:
            reason, label, kind, why = REPAIRED, "repaired", recorder.WARNING, str(verdict)
        self._metrics.issued.labels(label).inc()
        self._events.event(secret, kind, reason, f"New {what} for the webhooks: {why}")
        show = _log.warning if kind == recorder.WARNING else _log.info
        show("Webhook certificates issued", secret=str(secret.key), issued=what, reason=why)

    # The webhook configurations.

    async def _trust(
        self, cluster: Cluster, configs: list[configurations.Configuration], material: Material
    ) -> None:
        """Add the authority of ``material`` to each of the webhook configurations ``configs`` that lacks it."""
        served = self._served.ca_crt if self._served is not None else b""
        for configuration in configs:
            if configurations.trust(configuration, material.ca_crt, served, self._now(), self._options.since):
                await cluster.client.update(configuration)
                _log.info("Webhook configuration trusts the authority", name=configuration.name)
        # A configuration may have lost the authority, and another replica may have added it again. Whoever adds the
        # authority also writes the annotation.
        trusted = material.ca_crt, [each.annotations.get(self._options.since) for each in configs]
        if self._trusted[0] != trusted:
            self._trusted = (trusted, anyio.current_time())

    # Serving.

    def _settling(self, material: Material) -> float:
        """Return the seconds until ``material`` may be served: zero or less if it may be served now."""
        if self._served is None or self._served.ca_crt == material.ca_crt:
            return 0.0
        return self._trusted[1] + self._options.propagation_delay - anyio.current_time()

    def _serve(self, material: Material) -> None:
        self._problem = ""
        if self._served == material:
            return
        # A new context, because an RSA certificate would not replace one of an elliptic curve in the former context.
        context = pki.serving_context(material)
        self._context, self._served = context, material
        for label, pem in (("authority", material.ca_crt), ("serving", material.tls_crt)):
            self._metrics.expiry.labels(label).set(pki.certificate(pem).not_valid_after_utc.timestamp())
        _log.info(
            "Serving with the certificate", expires=pki.certificate(material.tls_crt).not_valid_after_utc
        )
        if not self._ready.is_set():
            self._ready.set()
            self._when_served()


def add_to_manager(
    mgr: manager.Manager,
    options: Options,
    register: Callable[[], None],
    *,
    event_source: str = EVENT_SOURCE,
    metrics: Metrics | None = None,
    check: str = "webhooks",
) -> Certificates:
    """Serve the webhooks that ``register`` adds to ``mgr.webhook_server``, with certificates that this program makes.

    ``register`` is called once, as soon as the first certificate is served. Until the webhooks are served, the
    readiness check named ``check`` fails. Every replica answers webhooks, so controllers and leader election do not
    wait.
    """

    def begin() -> None:  # an earlier access to the server would start it
        mgr.webhook_server.use(certificates)
        register()

    def ready() -> None:
        certificates.check()
        mgr.webhook_server.started_checker()()

    certificates = Certificates(
        options,
        functools.partial(connect, mgr.config, options),
        mgr.event_recorder_for(event_source),
        when_served=begin,
        metrics=metrics,
    )
    mgr.add(certificates)
    mgr.add_readyz_check(check, ready)
    return certificates
