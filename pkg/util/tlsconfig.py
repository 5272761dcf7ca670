# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Converts the TLS settings of the Configuration to options of the manager's servers.

Versions and cipher suites have Go's names. A name that is not known or not available is left out with a remark, as
the Go manager does: one wrong name in a list must not stop the manager.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Final

import msgspec
from controller_runtime.serving import TLSOptions as ServerOptions

from pkg.apis.config.v1alpha1 import TLSOptions

HTTP_1_1: Final = "http/1.1"

_VERSIONS: Final = {
    "1.0": ssl.TLSVersion.TLSv1,
    "1.1": ssl.TLSVersion.TLSv1_1,
    "1.2": ssl.TLSVersion.TLSv1_2,
    "1.3": ssl.TLSVersion.TLSv1_3,
}
_ALWAYS: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)
"""The suites of TLS 1.3. As in Go, these suites cannot be configured."""
_SECURE: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
"""The suites that Go allows by default, in the order in which servers prefer them."""
_INSECURE: Final = {
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
}


class Settings(msgspec.Struct, frozen=True):
    """The settings that are in effect."""

    minimum_version: ssl.TLSVersion | None = None
    """None selects the default, TLS 1.2."""
    suites: tuple[str, ...] = ()
    """The allowed suites by Go's names; an empty tuple selects the default."""
    remarks: tuple[str, ...] = ()
    """Settings that are insecure or have no effect."""

    def server_options(self) -> ServerOptions:
        """Return the options of a server."""
        minimum = self.minimum_version or ssl.TLSVersion.TLSv1_2
        ciphers = _available(self.suites)
        if self.suites and not ciphers:
            # No suite of an older version is allowed.
            minimum = ssl.TLSVersion.TLSv1_3
        if minimum < ssl.TLSVersion.TLSv1_2:
            # OpenSSL offers older versions only at this level, and Python's default has no suite for them.
            ciphers = [*(ciphers or _SECURE.values()), "@SECLEVEL=0"]
        return ServerOptions(minimum_version=minimum, ciphers=":".join(ciphers), next_protocols=(HTTP_1_1,))


def resolve(options: TLSOptions) -> Settings:
    """Return the settings for ``options``."""
    remarks: list[str] = []
    minimum = _version(options.min_version, remarks)
    suites = _suites(options.cipher_suites or (), remarks)
    others = [each for each in options.next_protos or () if each != HTTP_1_1]
    remarks += [f"protocol {each!r} is not served; {HTTP_1_1} is" for each in others]
    return Settings(minimum, suites, tuple(remarks))


def _version(text: str | None, remarks: list[str]) -> ssl.TLSVersion | None:
    if not text:
        return None
    found = _VERSIONS.get(text)
    if found is None:
        remarks.append(f"TLS version {text!r} is unknown; 1.2 is the oldest that is accepted")
    elif found < ssl.TLSVersion.TLSv1_2:
        remarks.append(f"TLS version {text} is insecure")
    return found


def _suites(names: Sequence[str], remarks: list[str]) -> tuple[str, ...]:
    suites = []
    for name in names:
        if name not in _ALWAYS and name not in _SECURE and name not in _INSECURE:
            remarks.append(f"cipher suite {name!r} is unknown and left out")
            continue
        suites.append(name)
        if name in _INSECURE:
            remarks.append(f"cipher suite {name} is insecure")
        if name not in _ALWAYS and not _available([name]):
            remarks.append(f"cipher suite {name} is not available and left out")
    available = _available(suites)
    if suites and not available:
        remarks.append("no cipher suite of TLS 1.2 is allowed; clients need TLS 1.3")
    elif suites and not any("ECDSA" in each for each in available):
        remarks.append(
            "only cipher suites for RSA are allowed; with the manager's own certificate, clients need TLS 1.3"
        )
    return tuple(suites)


def _available(names: Sequence[str]) -> list[str]:
    """Return OpenSSL's names of the suites, except suites of TLS 1.3 and suites that OpenSSL does not have."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found = []
    for name in names:
        cipher = _SECURE.get(name) or _INSECURE.get(name)
        if cipher is None:
            continue
        try:
            context.set_ciphers(cipher)
        except ssl.SSLError:
            continue
        found.append(cipher)
    return found
