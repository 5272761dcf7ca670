# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""etcd and kube-apiserver: their pinned releases, their certificates, and their processes on loopback."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from controller_runtime.envtest.binaries import Binary, Tool, ToolGroup
from controller_runtime.envtest.errors import EnvtestError
from controller_runtime.envtest.files import private_directory, write_private
from controller_runtime.envtest.pki import Authority, kubeconfig, service_account_key
from controller_runtime.envtest.ports import HOST, free_ports
from controller_runtime.envtest.process import Component, Probe, Supervisor

if TYPE_CHECKING:
    from controller_runtime.machinery import JSON

VERSION_VARIABLE: Final = "ENVTEST_K8S_VERSION"
DEFAULT_RELEASE: Final = "1.35"

_TOOLS: Final = Path(__file__).parent / "tools"
_ETCD: Final = ToolGroup(_TOOLS / "etcd", "go.etcd.io/etcd/server/v3")
_MODULE: Final = "k8s.io/kubernetes"

ETCD: Final = Tool("etcd", _ETCD, "go.etcd.io/etcd/server/v3")
RELEASES: Final[Mapping[str, ToolGroup]] = {
    "1.34": ToolGroup(_TOOLS / "kube-1.34", _MODULE),
    "1.35": ToolGroup(_TOOLS / "kube", _MODULE),
    "1.36": ToolGroup(_TOOLS / "kube-1.36", _MODULE),
    "1.37": ToolGroup(_TOOLS / "kube-1.37", _MODULE),
}
"""The pinned patch version of each release line."""
SERVICE_RANGE: Final = "10.96.0.0/16"
_NAMES: Final = (HOST, "10.96.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


def release_of(version: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the release line of ``version``, which may be a patch version (``1.36.3``, ``v1.36.3``).

    If ``version`` is empty, use ``ENVTEST_K8S_VERSION`` in ``environ``. If that is not set either, use the default.

    Raises:
        EnvtestError: the release line is not pinned.
    """
    wanted = version or (environ or {}).get(VERSION_VARIABLE, "") or DEFAULT_RELEASE
    line = ".".join(wanted.removeprefix("v").split(".")[:2])
    if line not in RELEASES:
        known = ", ".join(RELEASES)
        raise EnvtestError(f"Kubernetes {wanted} is not among the pinned releases: {known}")
    return line


def kube_tool(name: str, release: str = DEFAULT_RELEASE) -> Tool:
    """Return the tool for a program of a Kubernetes release. The binary reports the version from which it was built."""
    group = RELEASES[release]
    major, minor = group.version.removeprefix("v").split(".")[:2]
    stamp = "k8s.io/component-base/version."
    symbols = {f"{stamp}gitVersion": group.version, f"{stamp}gitMajor": major, f"{stamp}gitMinor": minor}
    return Tool(name, group, f"{_MODULE}/cmd/{name}", symbols)


class ControlPlane:
    """An API server and its store.

    The certificates are written to ``directory``, which must outlive the processes. Without ``service_accounts``, the
    ServiceAccount admission plugin is off. Pods can then be created although no controller creates service accounts.
    With ``etcd_gateway``, etcd also answers JSON requests; clients need the TLS settings `etcd_tls`.
    """

    def __init__(
        self,
        directory: Path,
        binaries: Mapping[str, Binary],
        supervisor: Supervisor,
        *,
        data: Path,
        service_accounts: bool = True,
        flags: Sequence[str] = (),
        etcd_gateway: bool = False,
    ) -> None:
        self.pki = private_directory(directory / "pki")
        self.supervisor = supervisor
        self.authority = Authority.create("local-cluster-ca")
        self._binaries = binaries
        self._data = data
        self._service_accounts = service_accounts
        self._flags = flags
        self._etcd_gateway = etcd_gateway
        self._etcd, self._peer, self._port = free_ports(3)

    @property
    def url(self) -> str:
        """The URL of the API server."""
        return f"https://{HOST}:{self._port}"

    @property
    def etcd_url(self) -> str:
        """The URL of etcd; see `etcd_tls`."""
        return f"https://{HOST}:{self._etcd}"

    @property
    def etcd_tls(self) -> ssl.SSLContext:
        """The TLS settings of a client of etcd, with the API server's certificate: etcd accepts only that one."""
        context = ssl.create_default_context(cafile=str(self.pki / "etcd-ca.crt"))
        context.load_cert_chain(self.pki / "etcd-client.crt", self.pki / "etcd-client.key")
        return context

    @property
    def authority_file(self) -> Path:
        """The file of the CA certificate for this cluster's servers and clients."""
        return self.pki / "ca.crt"

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> dict[str, JSON]:
        """Return a kubeconfig with a new client certificate for ``user``."""
        pair = self.authority.client(user, groups)
        return kubeconfig(self.url, self.authority.certificate, user=user, client=pair)

    async def start(self, *, timeout: float = 60) -> None:
        """Start etcd and the API server at the same time; return when the API server is ready.

        Raises:
            ComponentError: one of the two failed. If the other has started, it keeps running.
        """
        await self._write_pki()
        etcd, apiserver = self._etcd_component(), self._apiserver_component()
        self.supervisor.start(etcd)
        self.supervisor.start(apiserver)
        try:
            await self.supervisor.wait_ready(apiserver, timeout=timeout)
        except Exception as error:  # raised again, unless the API server failed because etcd has ended
            if self.supervisor.processes["etcd"].poll() is not None:
                raise self.supervisor.processes["etcd"].death() from error
            raise
        self.supervisor.check()

    def kill_api_server(self) -> None:
        """Kill the API server as if its machine had failed: client connections break, and etcd keeps running."""
        self.supervisor.kill(["kube-apiserver"])

    async def start_api_server(self, *, flags: Sequence[str] | None = None, timeout: float = 60) -> None:
        """Start the API server again at the same address, and return when it is ready.

        ``flags`` replace the additional flags of the previous start.

        Raises:
            ComponentError: the API server failed.
        """
        if flags is not None:
            self._flags = flags
        apiserver = self._apiserver_component()
        self.supervisor.start(apiserver)
        await self.supervisor.wait_ready(apiserver, timeout=timeout)

    async def start_another_api_server(self, name: str, *, etcd_url: str = "", timeout: float = 60) -> str:
        """Start another API server on the same etcd and return its URL when it is ready.

        It uses the certificates of the first server. To connect it to etcd through a proxy, set ``etcd_url`` to the URL
        of the proxy.

        Raises:
            ComponentError: the API server failed.
        """
        (port,) = free_ports(1)
        apiserver = self._apiserver_component(name, port, etcd_url or self.etcd_url)
        self.supervisor.start(apiserver)
        await self.supervisor.wait_ready(apiserver, timeout=timeout)
        return f"https://{HOST}:{port}"

    async def _write_pki(self) -> None:
        private, public = await anyio.to_thread.run_sync(service_account_key)
        write_private(self.pki / "sa.key", private)
        write_private(self.pki / "sa.pub", public)
        self.authority.pair.write(self.pki, "ca")
        self.authority.server("kube-apiserver", _NAMES).write(self.pki, "server")
        self.authority.client("admin", ["system:masters"]).write(self.pki, "admin")
        _write_etcd_certificates(self.pki)

    def _etcd_component(self) -> Component:
        client, peer = self.etcd_url, f"https://{HOST}:{self._peer}"
        flags = {
            "data-dir": self._data,
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "log-level": "warn",
        }
        command = _command(self._binaries["etcd"], flags)
        tls = _etcd_tls_flags(self.pki, gateway=self._etcd_gateway)
        return Component("etcd", [*command, "--unsafe-no-fsync", *tls])

    def _apiserver_component(
        self, name: str = "kube-apiserver", port: int = 0, etcd_url: str = ""
    ) -> Component:
        port = port or self._port
        flags = {
            "etcd-servers": etcd_url or self.etcd_url,
            "bind-address": HOST,
            "advertise-address": HOST,
            "secure-port": port,
            "tls-cert-file": self.pki / "server.crt",
            "tls-private-key-file": self.pki / "server.key",
            "client-ca-file": self.authority_file,
            "authorization-mode": "RBAC",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-signing-key-file": self.pki / "sa.key",
            "service-account-key-file": self.pki / "sa.pub",
            "service-cluster-ip-range": SERVICE_RANGE,
            "endpoint-reconciler-type": "none",
        }
        if not self._service_accounts:
            flags["disable-admission-plugins"] = "ServiceAccount"
        admin = (self.pki / "admin.crt", self.pki / "admin.key")
        ready = Probe(f"https://{HOST}:{port}/readyz", self.authority_file, admin)
        command = _command(self._binaries["kube-apiserver"], flags)
        argv = [*command, *_etcd_client_flags(self.pki), *self._flags]
        return Component(name, argv, ready)


def _write_etcd_certificates(pki: Path) -> None:
    """Write the certificates of etcd and of its only client, the API server, to ``pki``.

    They are signed by a new authority, whose key is not kept. etcd must not accept client certificates of the cluster's
    authority, because every client of etcd may do everything.
    """
    authority = Authority.create("etcd-ca")
    write_private(private_directory(pki) / "etcd-ca.crt", authority.certificate)
    authority.server("etcd", (HOST,)).write(pki, "etcd")
    authority.client("kube-apiserver").write(pki, "etcd-client")


def _etcd_tls_flags(pki: Path, *, gateway: bool = False) -> list[str]:
    """Return etcd's flags. With them, etcd serves only clients and peers with a certificate of etcd's own authority."""
    flags = {
        "client-cert-auth": "true",
        "cert-file": pki / "etcd.crt",
        "key-file": pki / "etcd.key",
        "trusted-ca-file": pki / "etcd-ca.crt",
        "peer-client-cert-auth": "true",
        "peer-cert-file": pki / "etcd.crt",
        "peer-key-file": pki / "etcd.key",
        "peer-trusted-ca-file": pki / "etcd-ca.crt",
        "enable-grpc-gateway": "true" if gateway else "false",
    }
    if gateway:  # the gateway is a client of etcd
        flags |= {"client-cert-file": pki / "etcd-client.crt", "client-key-file": pki / "etcd-client.key"}
    return _arguments(flags)


def _etcd_client_flags(pki: Path) -> list[str]:
    """Return the flags with which an API server can use an etcd that was started with `_etcd_tls_flags`."""
    flags = {
        "etcd-cafile": pki / "etcd-ca.crt",
        "etcd-certfile": pki / "etcd-client.crt",
        "etcd-keyfile": pki / "etcd-client.key",
    }
    return _arguments(flags)


def _arguments(flags: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in flags.items()]


def _command(binary: Binary, flags: Mapping[str, object]) -> list[str]:
    return [str(binary.path), *_arguments(flags)]
