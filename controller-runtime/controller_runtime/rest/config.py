# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Config: where the server is, how to trust it, and who we are.

:func:`load_config` looks where kubectl and controller-runtime look, in this order: the file it is given,
the files that ``KUBECONFIG`` names, the pod's own service account, ``~/.kube/config``.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from . import http1, kubeconfig, kubeconfig_import, login, proxy
from .credentials import Anonymous, Credentials, TokenFile
from .errors import ConfigError
from .tls import TLSConfig

_HEADER_NAME: Final = "!#$&'*+-.^_`|~"
"""What RFC 9110 allows in a header's name, letters and digits aside; of these, ``%`` escapes the others here."""
_UNFIT_FOR_HEADER: Final = re.compile(r"[^\x20-\x7e]")
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def user_agent(program: str, release: str) -> str:
    """Return ``program/release (os/arch)``; what stands before the slash is the field manager of plain writes, too."""
    named = f"{program}/{release} ({platform.system().lower()}/{platform.machine().lower()})"
    return _UNFIT_FOR_HEADER.sub("_", named)


def default_user_agent() -> str:
    """Return :func:`user_agent` of what was started: a script by its name, a module by its package's.

    A program that can be started in several ways says who it is by :attr:`Config.user_agent`.
    """
    started = Path(sys.argv[0] or "python")
    program = started.parent.name if started.name == "__main__.py" else started.name.removesuffix(".py")
    try:
        release = version("controller-runtime")
    except PackageNotFoundError:
        release = "unknown"
    return user_agent(program.replace("/", "_") or "python", release)


@dataclass(frozen=True, slots=True)
class Impersonation:
    """On whose behalf requests are made; the server asks whether we may (the verb ``impersonate``)."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers that say so; a name may occur more than once."""
        found = [("Impersonate-User", self.user)]
        found += [("Impersonate-Uid", self.uid)] if self.uid else []
        found += [("Impersonate-Group", group) for group in self.groups]
        for key, values in self.extra.items():
            name = f"Impersonate-Extra-{quote(key, safe=_HEADER_NAME)}"
            found += [(name, value) for value in values]
        return found


@dataclass(slots=True)
class Config:
    """How to reach an API server."""

    host: str
    """Scheme, host and port, and a path where the server lives below one."""
    tls: TLSConfig | None = None
    credentials: Credentials = field(default_factory=Anonymous)
    user_agent: str = field(default_factory=default_user_agent)
    qps: float = 0
    """Requests a second over time; zero or less does not throttle."""
    burst: int = 0
    """Requests at once; at least one."""
    namespace: str = ""
    """The namespace of the context, or of the pod."""
    proxy: str = ""
    """URL of a proxy. Where a kubeconfig has no ``proxy-url``, :func:`load_config` takes it from the environment."""
    impersonate: Impersonation | None = None
    """On whose behalf, beside :attr:`credentials`, which say who we are."""

    @property
    def address(self) -> str:
        """:attr:`host` as logs and errors show it: without the user name and password that it may hold."""
        return http1.shown(self.host)

    def __repr__(self) -> str:
        """Return what identifies the connection; no key, token or password."""
        return (
            f"{type(self).__name__}(host={self.address!r}, tls={self.tls!r}, credentials={type(self.credentials).__name__}, "
            f"user_agent={self.user_agent!r}, qps={self.qps!r}, burst={self.burst!r}, namespace={self.namespace!r}, "
            f"proxy={http1.shown(self.proxy)!r}, impersonate={self.impersonate!r})"
        )

    @classmethod
    async def from_kubeconfig_dict(
        cls, data: Mapping[str, Any], *, context: str | None = None, environ: Mapping[str, str] | None = None
    ) -> Config:
        """Return the connection that a parsed kubeconfig describes; relative paths are meant from here.

        ``environ`` names a proxy where the kubeconfig does not; by default it is the process's.

        Raises:
            ConfigError: it lacks something.
        """
        return await _from_kubeconfig(
            kubeconfig.from_dict(data, context=context), os.environ if environ is None else environ
        )


async def load_config(
    path: str | None = None, *, context: str | None = None, environ: Mapping[str, str] | None = None
) -> Config:
    """Return the connection that the kubeconfig at ``path``, the environment or the pod describes.

    Raises:
        ConfigError: nothing is found, or what is found cannot be used.
    """
    environ = os.environ if environ is None else environ
    default = _default_kubeconfig(environ)
    paths = path or environ.get("KUBECONFIG", "")
    if not paths and context is None and environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster_config(environ)
    if not paths and not default:
        raise ConfigError(
            "no way to reach a cluster: no kubeconfig is given, KUBECONFIG is not set, "
            "~/.kube/config does not exist and this is no pod of a cluster"
        )
    return await _from_kubeconfig(kubeconfig.from_files(paths or default, context=context), environ)


def in_cluster_config(environ: Mapping[str, str], *, folder: Path = SERVICE_ACCOUNT) -> Config:
    """Return the connection of a pod to its own cluster.

    Raises:
        ConfigError: this is no pod, or it has no service account token.
    """
    library = kubeconfig_import.modules()
    loader = library.incluster_config.InClusterConfigLoader(
        token_filename=str(folder / "token"), cert_filename=str(folder / "ca.crt"), environ=environ
    )
    settings = kubeconfig.Settings()
    try:
        loader.load_and_set(settings)
    except (library.config_exception.ConfigException, OSError) as error:
        raise ConfigError(f"in-cluster configuration: {login.redacted(error)}") from error
    namespace = folder / "namespace"
    return Config(
        host=settings.host,
        tls=TLSConfig(ca=Path(settings.ssl_ca_cert)),
        credentials=TokenFile(folder / "token"),
        namespace=namespace.read_text(encoding="utf-8").strip() if namespace.exists() else "",
        proxy=proxy.from_environment(settings.host, environ),
    )


def _default_kubeconfig(environ: Mapping[str, str]) -> str:
    path = Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"
    return str(path) if path.exists() else ""


async def _from_kubeconfig(access: kubeconfig.Access, environ: Mapping[str, str]) -> Config:
    credentials = await access.credentials()
    return Config(
        host=access.host,
        tls=access.tls(),
        credentials=credentials,
        namespace=access.namespace,
        proxy=access.proxy or proxy.from_environment(access.host, environ),
        impersonate=Impersonation(**who) if (who := access.impersonated()) else None,
    )
