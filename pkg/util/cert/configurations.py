# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The webhook configurations: the authorities that the API server trusts, and the names by which it calls us."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from controller_runtime import client, log
from controller_runtime.apis.admissionregistration.v1 import (
    MutatingWebhook,
    MutatingWebhookConfiguration,
    ValidatingWebhook,
    ValidatingWebhookConfiguration,
)
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError
from controller_runtime.serving import certificates
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from . import pki

# +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=validator.trainer.kubeflow.org,verbs=get;list;watch;update
# +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=defaulter.trainer.kubeflow.org,verbs=get;list;watch;update

Configuration = ValidatingWebhookConfiguration | MutatingWebhookConfiguration

OVERLAP: Final = timedelta(hours=24)
"""Time for which former authorities are trusted in addition to a new one.

After this time, every replica uses the new authority.
"""
SINCE: Final = "trainer.kubeflow.org/webhook-authority-since"
"""Annotation with the time when the newest authority was added. It is removed when no other authority is trusted."""
MAX_FORMER: Final = 64
"""Maximum number of former authorities that are kept, even if there are more rotations within the overlap."""

_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_ABSENT: Final = "The webhook configuration does not exist: its webhooks are not called"
_DENIED: Final = "The role does not permit reading the webhook configuration: its webhooks are not called"

_log = log.logger_from("cert-rotation")


async def read(reader: client.Reader, validating: str, mutating: str) -> list[Configuration]:
    """Return the configurations with these names that exist.

    The mutating configuration is also left out if the role does not permit reading it. Trainer v2.1 has no such
    configuration, and its role does not permit reading one.

    Raises:
        StatusError: the API server refused a request.
    """
    found: list[Configuration] = []
    for kind, name in (
        (ValidatingWebhookConfiguration, validating),
        (MutatingWebhookConfiguration, mutating),
    ):
        try:
            found.append(await reader.get(kind, ("", name)))
        except NotFoundError:
            _log.warning(_ABSENT, kind=kind.gvk.kind, name=name)
        except ForbiddenError:
            if kind is not MutatingWebhookConfiguration:
                raise
            _log.warning(_DENIED, kind=kind.gvk.kind, name=name)
    return found


def server_names(service: str, namespace: str, configurations: Iterable[Configuration]) -> list[str]:
    """Return the names that a serving certificate must have: our Service's name, and the names that the hooks call."""
    names = {f"{service}.{namespace}.svc": None}
    for hook in (hook for each in configurations for hook in each.webhooks or ()):
        called = hook.client_config
        if called is None:
            continue
        if called.service is not None and called.service.name and called.service.namespace:
            names[f"{called.service.name}.{called.service.namespace}.svc"] = None
        elif called.url and (host := _host(called.url)):
            names[host] = None
    return list(names)


def trust(configuration: Configuration, current: bytes, served: bytes, now: datetime) -> bool:
    """Put ``current`` first in every hook's bundle. Return True if anything changed.

    During the overlap, the bundle also contains the authorities that were trusted before, and the authority ``served``,
    which signed the certificate that this replica serves. The start of the overlap is stored in an annotation of the
    configuration, where all replicas see it.
    """
    hooks = [hook for hook in configuration.webhooks or () if hook.client_config is not None]
    before = [_bundle(hook) for hook in hooks]
    newest = _certificates(current)
    former = _former(newest, (*before, served), now)
    since = None
    if former:
        leads = all(_certificates(bundle)[: len(newest)] == newest for bundle in before)
        since = _since(configuration, now) if leads else now
        if since is None:
            since = now
        elif now - since > OVERLAP:
            former, since = [], None
    wanted = b"".join([current if current.endswith(b"\n") or not former else current + b"\n", *former])
    changed = _set_since(configuration, since)
    for hook, bundle in zip(hooks, before, strict=True):
        if bundle != wanted and hook.client_config is not None:
            hook.client_config.ca_bundle = base64.b64encode(wanted).decode()
            changed = True
    return changed


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    """Return the certificates in a bundle; other content is skipped."""
    found = []
    for each in bundle.split(_BEGIN)[1:]:
        with contextlib.suppress(ValueError):
            found.append(pki.certificate(_BEGIN + each))
    return found


def _former(newest: list[x509.Certificate], bundles: Iterable[bytes], now: datetime) -> list[bytes]:
    """Return the certificates in ``bundles`` that are not in ``newest`` and have not expired.

    Each certificate is returned once, the youngest first. If there are more than ``MAX_FORMER``, the oldest are
    dropped.
    """
    kept = {
        found: found.public_bytes(Encoding.PEM)
        for bundle in bundles
        for found in _certificates(bundle)
        if found not in newest and found.not_valid_after_utc > now
    }
    by_age = sorted(kept, key=lambda cert: (cert.not_valid_before_utc, cert.serial_number), reverse=True)
    return [kept[cert] for cert in by_age[:MAX_FORMER]]


def _since(configuration: Configuration, now: datetime) -> datetime | None:
    try:
        noted = datetime.fromisoformat(configuration.annotations.get(SINCE, ""))
    except ValueError:
        return None
    return noted if noted.tzinfo is not None and noted <= now + certificates.SKEW else None


def _set_since(configuration: Configuration, since: datetime | None) -> bool:
    """Set or remove the annotation with the start of the overlap. Return True if anything changed."""
    annotations = dict(configuration.annotations)
    if since is None:
        annotations.pop(SINCE, None)
    else:
        annotations[SINCE] = since.isoformat(timespec="seconds")
    changed = annotations != dict(configuration.annotations)
    if changed:
        configuration.metadata.annotations = annotations or None
    return changed


def _bundle(hook: ValidatingWebhook | MutatingWebhook) -> bytes:
    return pki.decoded(hook.client_config.ca_bundle if hook.client_config is not None else None)


def _host(url: str) -> str | None:
    """Return the host of a URL, or None if no certificate can name it.

    Hosts with characters beyond ASCII, and addresses with a zone, cannot be named.
    """
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:  # Go accepts brackets around a text that is not an IPv6 address
        return None
    if not host.isascii() or "%" in host:
        return None
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host
