# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The proxy of the environment: ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``, with the semantics of Go's net/http.

The names may be lower case; upper case takes precedence. ``NO_PROXY`` lists destinations that are reached directly:
``*``, CIDRs, IP addresses, a domain with its subdomains (``example.com``) or only its subdomains (``.example.com``,
``*.example.com``). An IP address or a domain may be limited to one ``:port``. ``localhost`` and loopback addresses are
always reached directly.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from . import http1
from .errors import ConfigError

_IP = IPv4Address | IPv6Address


def from_environment(server: str, environ: Mapping[str, str]) -> str:
    """Return the URL of the proxy for requests to the URL ``server``, or an empty string if none is used.

    Raises:
        ConfigError: the value of the variable is not the address of an HTTP proxy. The message has the variable's name.
    """
    try:
        origin = http1.Origin.parse(server)
    except http1.Error:
        return ""  # the transport reports it
    name, proxy = _variable("HTTPS_PROXY" if origin.secure else "HTTP_PROXY", environ)
    if not proxy or _direct(origin.host.lower(), origin.port, _variable("NO_PROXY", environ)[1]):
        return ""
    url = proxy if "://" in proxy else f"http://{proxy}"
    try:
        http1.Origin.parse(url)
    except http1.Error as error:
        raise ConfigError(f"{name}: {error}") from error
    return url


def _variable(name: str, environ: Mapping[str, str]) -> tuple[str, str]:
    for each in (name, name.lower()):
        if value := environ.get(each, "").strip():
            return each, value
    return name, ""


def _direct(host: str, port: int, no_proxy: str) -> bool:
    ip = _ip(host)
    if host == "localhost" or (ip is not None and ip.is_loopback):
        return True
    entries = (entry.strip().lower() for entry in no_proxy.split(","))
    return any(_matches(entry, host, ip, port) for entry in entries if entry)


def _matches(entry: str, host: str, ip: _IP | None, port: int) -> bool:
    """Return True if an entry of ``NO_PROXY`` matches the host; an invalid entry matches none."""
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return ip is not None and ip in ip_network(entry, strict=False)
        except ValueError:
            return False
    name, only = _split(entry)
    if only is not None and only != str(port):
        return False
    if (address := _ip(name)) is not None:
        return ip == address
    name = name.removeprefix("*") if name.startswith("*.") else name
    if not name or not name.strip("."):
        return False
    below, domain = name.startswith("."), name.removeprefix(".")
    try:
        domain = domain if domain.isascii() else domain.encode("idna").decode("ascii")
    except UnicodeError:
        return False
    return host.endswith(f".{domain}") or (host == domain and not below)


def _split(entry: str) -> tuple[str, str | None]:
    """Return host and port of an entry; an IPv6 address with a port must be in brackets."""
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        return host, rest.removeprefix(":") or None
    host, colon, port = entry.rpartition(":")
    return (host, port) if colon and ":" not in host else (entry, None)


def _ip(text: str) -> _IP | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
