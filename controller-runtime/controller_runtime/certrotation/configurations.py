# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Webhook configurations and CRDs: the authorities that the API server trusts, and the names by which it calls us."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from controller_runtime import client, log
from controller_runtime.apis.admissionregistration.v1 import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    WebhookClientConfig,
)
from controller_runtime.apis.apiextensions.v1 import CustomResourceDefinition
from controller_runtime.machinery.errors import ForbiddenError, NotFoundError
from controller_runtime.serving import certificates

from . import pki
from .cluster import SINCE, Options

Configuration = ValidatingWebhookConfiguration | MutatingWebhookConfiguration | CustomResourceDefinition

OVERLAP: Final = timedelta(hours=24)
"""Time for which former authorities are trusted in addition to a new one.

After this time, every replica uses the new authority.
"""
MAX_FORMER: Final = 64
"""Maximum number of former authorities that are kept, even if there are more rotations within the overlap."""

_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
_ABSENT: Final = "The webhook configuration does not exist: its webhooks are not called"
_DENIED: Final = "The role does not permit reading the webhook configuration: its webhooks are not called"

_log = log.logger_from("cert-rotation")


async def read(reader: client.Reader, options: Options) -> list[Configuration]:
    """Return the configurations with webhooks that exist.

    Configurations of the kinds in ``options.may_be_denied`` are also left out if the role does not permit reading them.

    Raises:
        StatusError: the API server refused a request.
    """
    existing: list[Configuration] = []
    for kind, name in options.configurations():
        try:
            existing.append(await reader.get(kind, ("", name)))
        except NotFoundError:
            _log.warning(_ABSENT, kind=kind.gvk.kind, name=name)
        except ForbiddenError:
            if kind not in options.may_be_denied:
                raise
            _log.warning(_DENIED, kind=kind.gvk.kind, name=name)
    return existing


def server_names(service: str, namespace: str, configurations: Iterable[Configuration]) -> list[str]:
    """Return the names that a serving certificate must have: our Service's name, and the names that the hooks call."""
    names = {f"{service}.{namespace}.svc": None}
    for called in (called for configuration in configurations for called in _clients(configuration)):
        if called.service is not None and called.service.name and called.service.namespace:
            names[f"{called.service.name}.{called.service.namespace}.svc"] = None
        elif called.url and (host := _host(called.url)):
            names[host] = None
    return list(names)


def _clients(configuration: Configuration) -> list[WebhookClientConfig]:
    """Return how the API server calls the webhooks of a configuration."""
    if not isinstance(configuration, CustomResourceDefinition):
        clients = (hook.client_config for hook in configuration.webhooks or ())
        return [client for client in clients if client is not None]
    conversion = (configuration.spec.conversion if configuration.spec is not None else None) or {}
    called = (conversion.get("webhook") or {}).get("clientConfig")
    return [WebhookClientConfig.from_dict(called)] if isinstance(called, dict) else []


def trust(
    configuration: Configuration, current: bytes, served: bytes, now: datetime, annotation: str = SINCE
) -> bool:
    """Put ``current`` first in every hook's bundle. Return True if anything changed.

    During the overlap, the bundle also contains the authorities that were trusted before, and the authority ``served``,
    which signed the certificate that this replica serves. The start of the overlap is stored in an annotation of the
    configuration, where all replicas see it.
    """
    clients = _clients(configuration)
    before = [pki.decoded(client.ca_bundle) for client in clients]
    newest = _certificates(current)
    former = _former(newest, (*before, served), now)
    since = None
    if former:
        leads = all(_certificates(bundle)[: len(newest)] == newest for bundle in before)
        since = _since(configuration, now, annotation) if leads else now
        if since is None:
            since = now
        elif now - since > OVERLAP:
            former, since = [], None
    wanted = b"".join([current if current.endswith(b"\n") or not former else current + b"\n", *former])
    changed = _set_since(configuration, since, annotation)
    for called, bundle in zip(clients, before, strict=True):
        if bundle != wanted:
            called.ca_bundle = base64.b64encode(wanted).decode()
            if (
                isinstance(configuration, CustomResourceDefinition)
                and configuration.spec.conversion is not None
            ):
                webhook = {**configuration.spec.conversion["webhook"], "clientConfig": called.to_dict()}
                configuration.spec.conversion = {**configuration.spec.conversion, "webhook": webhook}
            changed = True
    return changed


def _certificates(bundle: bytes) -> list[x509.Certificate]:
    """Return the certificates in a bundle; other content is skipped."""
    certificates = []
    for block in bundle.split(_BEGIN)[1:]:
        with contextlib.suppress(ValueError):
            certificates.append(pki.certificate(_BEGIN + block))
    return certificates


def _former(newest: list[x509.Certificate], bundles: Iterable[bytes], now: datetime) -> list[bytes]:
    """Return the certificates in ``bundles`` that are not in ``newest`` and have not expired.

    Each certificate is returned once, the youngest first. If there are more than ``MAX_FORMER``, the oldest are
    dropped.
    """
    kept = {
        certificate: certificate.public_bytes(Encoding.PEM)
        for bundle in bundles
        for certificate in _certificates(bundle)
        if certificate not in newest and certificate.not_valid_after_utc > now
    }
    by_age = sorted(kept, key=lambda cert: (cert.not_valid_before_utc, cert.serial_number), reverse=True)
    return [kept[cert] for cert in by_age[:MAX_FORMER]]


def _since(configuration: Configuration, now: datetime, annotation: str) -> datetime | None:
    try:
        noted = datetime.fromisoformat(configuration.annotations.get(annotation, ""))
    except ValueError:
        return None
    return noted if noted.tzinfo is not None and noted <= now + certificates.SKEW else None


def _set_since(configuration: Configuration, since: datetime | None, annotation: str) -> bool:
    """Set or remove the annotation with the start of the overlap. Return True if anything changed."""
    annotations = dict(configuration.annotations)
    if since is None:
        annotations.pop(annotation, None)
    else:
        annotations[annotation] = since.isoformat(timespec="seconds")
    changed = annotations != dict(configuration.annotations)
    if changed:
        configuration.metadata.annotations = annotations or None
    return changed


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
