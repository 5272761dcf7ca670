# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Find the settings of the connection to an API server.

:func:`load_config` looks in the same places as kubectl and controller-runtime, in this order: the given file,
the files named by ``KUBECONFIG``, the pod's own service account if it can be used, ``~/.kube/config``. If a context is
given, the service account is skipped, because only files have contexts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from controller_runtime.machinery import JSON

from . import proxy
from .config import Config
from .credentials import TokenFile
from .errors import ConfigError
from .tls import TLSConfig

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


async def load_config(
    path: str | None = None, *, context: str | None = None, environ: Mapping[str, str] | None = None
) -> Config:
    """Return the connection described by the kubeconfig at ``path``, the environment or the pod.

    Raises:
        ConfigError: no configuration is found, or it cannot be used.
    """
    environ = os.environ if environ is None else environ
    default = _default_kubeconfig(environ)
    paths = path or environ.get("KUBECONFIG", "")
    if not paths and context is None and environ.get("KUBERNETES_SERVICE_HOST"):
        try:
            return in_cluster_config(environ)
        except ConfigError:
            # A pod may have no service account token but a kubeconfig.
            if not default:
                raise
    if not paths and not default:
        raise ConfigError(
            "no cluster configuration found: no kubeconfig is given, KUBECONFIG is not set, "
            "~/.kube/config does not exist and the process does not run in a pod"
        )
    from . import kubeconfig  # a pod does not need it

    return await kubeconfig.from_files(paths or default, context=context).config(environ)


async def config_from_dict(
    data: Mapping[str, JSON], *, context: str | None = None, environ: Mapping[str, str] | None = None
) -> Config:
    """Return the connection described by a parsed kubeconfig; relative paths start at the working directory.

    ``environ`` supplies the proxy if the kubeconfig has none; the default is the environment of the process.

    Raises:
        ConfigError: the kubeconfig is incomplete or invalid, or a login failed.
    """
    from . import kubeconfig  # a pod does not need it

    access = kubeconfig.from_dict(data, context=context)
    return await access.config(os.environ if environ is None else environ)


def in_cluster_config(environ: Mapping[str, str], *, folder: Path = SERVICE_ACCOUNT) -> Config:
    """Return the connection of a pod to its own cluster.

    Raises:
        ConfigError: the process does not run in a pod, the token or the CA certificate of the pod's service account is
            missing, or the proxy in ``environ`` is not an HTTP proxy.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigError(
            "in-cluster configuration: KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set"
        )
    for file in (folder / "token", folder / "ca.crt"):
        try:
            empty = not file.read_bytes()
        except OSError as error:
            raise ConfigError(f"in-cluster configuration: {error}") from error
        if empty:
            raise ConfigError(f"in-cluster configuration: {file} is empty")
    address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespace = folder / "namespace"
    return Config(
        host=address,
        tls=TLSConfig(ca=folder / "ca.crt"),
        credentials=TokenFile(folder / "token"),
        namespace=namespace.read_text(encoding="utf-8").strip() if namespace.exists() else "",
        proxy=proxy.from_environment(address, environ),
    )


def _default_kubeconfig(environ: Mapping[str, str]) -> str:
    try:
        path = Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"
    except RuntimeError:  # neither HOME nor the user database names a home directory
        return ""
    return str(path) if path.exists() else ""
