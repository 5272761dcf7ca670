# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses and host names of pods. Each pod has its own address in 127.64.0.0/10."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from controller_runtime.apis.core.v1 import Pod

from trainerctl.localcluster import manifests

_DOMAIN = "svc.cluster.local"


def host_name(pod: Pod) -> str:
    """Return the host name that the processes of a pod see."""
    return (pod.spec.hostname or pod.name)[:63].rstrip("-.")


def subdomain(pod: Pod) -> str:
    """Return the name of the headless Service that gives the pod a DNS name, or an empty text."""
    return pod.spec.subdomain or ""


def address(pod: Pod, cluster: str) -> str:
    """Return the address of a pod.

    The address is computed from the cluster, the namespace, the host name and the subdomain. If a pod replaces another
    one, it therefore gets the same address.
    """
    name = "/".join((cluster, pod.namespace, host_name(pod), subdomain(pod)))
    second, third, fourth = hashlib.sha256(name.encode()).digest()[:3]
    return f"127.{64 + second % 64}.{third}.{1 + fourth % 254}"


def names(pod: Pod) -> list[str]:
    """Return the names by which pods of the same namespace reach a pod."""
    host, sub = host_name(pod), subdomain(pod)
    if not sub:
        return [host]
    local = [f"{host}.{sub}", sub]
    full = [f"{each}.{pod.namespace}{end}" for each in local for end in ("", ".svc", f".{_DOMAIN}")]
    return [host, *local, *full]


class Hosts:
    """The hosts files, one for each namespace. Lines are removed only when the kubelet starts again."""

    def __init__(self, folder: Path, machine: Path = Path("/etc/hosts")) -> None:
        self._folder = folder
        self._machine = machine
        self._lines: dict[str, dict[str, None]] = {}
        self._complete: set[str] = set()
        """The namespaces whose hosts file contains all lines."""
        self._addresses: dict[str, dict[str, str]] = {}
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, namespace: str) -> Path:
        """Return the file of a namespace."""
        return self._folder / namespace

    def addresses(self, namespace: str) -> dict[str, str]:
        """Return the addresses of the pods in a namespace by full name. Only pods with a subdomain have a full name."""
        return self._addresses.get(namespace, {})

    def add(self, pod: Pod, cluster: str) -> Path:
        """Add the names of a pod to the file of its namespace, and return the file."""
        if subdomain(pod):
            full = [name for name in names(pod) if name.startswith(f"{host_name(pod)}.")]
            self._addresses.setdefault(pod.namespace, {}).update(dict.fromkeys(full, address(pod, cluster)))
        lines = [f"{address(pod, cluster)}\t{' '.join(names(pod))}"]
        aliases = pod.spec.host_aliases or []
        lines += [f"{alias.ip}\t{' '.join(alias.hostnames or [])}" for alias in aliases]
        self._add(pod.namespace, lines)
        return self.path(pod.namespace)

    def _add(self, namespace: str, lines: Iterable[str]) -> None:
        path, known = self.path(namespace), self._lines.setdefault(namespace, {})
        new = dict.fromkeys(line for line in lines if line not in known)
        known.update(new)
        if namespace not in self._complete:
            # The file is overwritten and not replaced by another one: containers may have it mounted.
            first = f"{self._of_machine()}\n127.0.0.1\t{manifests.TRAINER_SERVER}\n"
            path.write_text(first + "".join(f"{line}\n" for line in known))
            self._complete.add(namespace)
        elif new:
            self._complete.remove(namespace)  # if the disk is full, the next call writes all lines
            with path.open("a") as file:
                file.write("".join(f"{line}\n" for line in new))
            self._complete.add(namespace)

    def _of_machine(self) -> str:
        try:
            return self._machine.read_text().rstrip("\n")
        except OSError:
            return "127.0.0.1\tlocalhost"


def replace_names(text: str, addresses: Mapping[str, str]) -> str:
    """Replace names in ``text`` by addresses. Processes that do not see a hosts file need this."""
    for name in sorted(addresses, key=len, reverse=True):
        if name in text:
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", addresses[name], text)
    return text


def passed_environment() -> dict[str, str]:
    """Return the environment variables that containers inherit from this process, for example for proxies and pip."""
    return {name: os.environ[name] for name in _PASSED if name in os.environ}


_PASSED = (
    *(
        each
        for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
        for each in (name, name.upper())
    ),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE", "LANG", "TZ", "LD_LIBRARY_PATH"),
)
