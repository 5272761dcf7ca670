# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""What one context of a kubeconfig says: server, TLS, identity.

Merging of files, exec plugins, OIDC and gcloud logins are kubernetes-asyncio's. Ours are the parts it
does by temporary files (certificates given inline stay in memory here) or only once (a token file is read
again when it is rewritten).
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from controller_runtime import log

from . import http1, kubeconfig_import
from .credentials import Anonymous, Basic, Credentials, StaticToken, TokenFile
from .errors import ConfigError
from .login import PluginCredentials, redacted
from .tls import IssuedPair, TLSConfig

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_SECRETS: Final = frozenset({"exec", "auth-provider", "tokenFile", "token", "username", "password"})

_log: Final = log.logger_from("rest")


class Settings:
    """The bag of attributes that the library's loaders fill."""

    def __init__(self) -> None:
        self.api_key: dict[str, str] = {}
        self.host = ""
        self.ssl_ca_cert = ""


class Access:
    """One context: its cluster and its user, with ``source`` for error texts."""

    def __init__(self, source: str, loader: Any, cluster: _Entry, user: _Entry, namespace: str) -> None:
        self.source = source
        self.namespace = namespace
        self._loader = loader
        self._cluster = cluster
        self._user = user
        self._issued: IssuedPair | None = None

    @property
    def host(self) -> str:
        """The server's address; without a scheme, settings of TLS make it https, as in client-go."""
        host = self._cluster.text("server").rstrip("/")
        if not host:
            raise ConfigError(f"kubeconfig {self.source}: {self._cluster.label}: server is missing")
        if "://" not in host:
            host = f"{'https' if self._mentions_tls() else 'http'}://{host}"
        if problem := _bad_address(host):
            raise self._cluster.error("server", f"{http1.shown(host)!r} {problem}")
        # What a URL holds for logging in goes to nobody in the clear, as the credentials do not.
        return host if host.startswith("https:") else http1.shown(host)

    @property
    def proxy(self) -> str:
        """The proxy's address, or nothing."""
        proxy = self._cluster.text("proxy-url")
        if proxy and (problem := _bad_address(proxy)):
            raise self._cluster.error("proxy-url", f"{http1.shown(proxy)!r} {problem}")
        return proxy

    def _mentions_tls(self) -> bool:
        """Whether there is anything that only a server with TLS has a use for."""
        parts = ("certificate-authority", "certificate-authority-data")
        shown = ("client-certificate", "client-certificate-data")
        return self._skips_verifying() or any(
            [*map(self._cluster.values.get, parts), *map(self._user.values.get, shown)]
        )

    def _skips_verifying(self) -> bool:
        skips = self._cluster.values.get("insecure-skip-tls-verify")
        if skips is not None and not isinstance(skips, bool):
            raise self._cluster.error("insecure-skip-tls-verify", "must be true or false")
        return bool(skips)

    def tls(self) -> TLSConfig | None:
        """Return the TLS settings, tried once, or None for a plain server."""
        if not self.host.startswith("https:"):
            return None
        config = TLSConfig(
            ca=self._cluster.pem("certificate-authority"),
            cert=self._user.pem("client-certificate"),
            key=self._user.pem("client-key"),
            server_name=self._cluster.text("tls-server-name"),
            verify=not self._skips_verifying(),
        )
        if (issued := self._issued) is not None:
            config = dataclasses.replace(config, cert=issued.cert, key=issued.key, issued=issued)
        try:
            config.ssl_context()
        except ConfigError as error:
            raise ConfigError(f"kubeconfig {self.source}: {error}") from error
        return config

    def impersonated(self) -> dict[str, Any]:
        """Return the fields of an ``Impersonation``, or nothing.

        Raises:
            ConfigError: something is told of nobody, or is of another type.
        """
        user = self._user
        name, uid = user.text("as"), user.text("as-uid")
        groups = user.texts("as-groups", user.values.get("as-groups"))
        given = user.values.get("as-user-extra") or {}
        if not isinstance(given, Mapping):
            raise user.error("as-user-extra", "is no map")
        extra = {str(key): user.texts("as-user-extra", values) for key, values in given.items()}
        if not name and (uid or groups or extra):
            raise user.error("as", "is missing: whom do as-uid, as-groups and as-user-extra describe?")
        return {"user": name, "uid": uid, "groups": groups, "extra": extra} if name else {}

    async def credentials(self) -> Credentials:
        """Return what proves the user's identity, trying it once; nothing where it would go out in the clear.

        Raises:
            ConfigError: a plugin failed, a file is missing.
        """
        user = self._user
        if not self.host.startswith("https:"):
            if user.values.keys() & _SECRETS:
                _log.warning(
                    "Credentials are not sent over plain HTTP", kubeconfig=self.source, server=self.host
                )
            return Anonymous()
        credentials: Credentials
        if "exec" in user.values or "auth-provider" in user.values:
            plugin = PluginCredentials(
                f"kubeconfig {self.source}: {user.label}", self._loader, user.values.get("exec")
            )
            await plugin.headers()
            self._issued = plugin.issued
            return plugin
        elif path := user.path("tokenFile"):
            credentials = TokenFile(path)
        elif token := user.text("token"):
            credentials = StaticToken(token)
        elif "username" in user.values:
            credentials = Basic(user.text("username"), user.text("password"))
        else:
            return Anonymous()
        await credentials.headers()
        return credentials


class _Entry:
    """A named cluster or user, and the folder from which its paths are meant."""

    def __init__(self, source: str, label: str, values: Mapping[str, Any], folder: Path) -> None:
        self.label = label
        self.values = values
        self._source = source
        self._folder = folder

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(key, "is no text")
        return value

    def texts(self, key: str, values: Any) -> tuple[str, ...]:
        if values is None:
            return ()
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise self.error(key, "is no list of texts")
        return tuple(values)

    def path(self, key: str) -> Path | None:
        value = self.text(key)
        return self._folder / value if value else None

    def pem(self, key: str) -> bytes | Path | None:
        """Return the bytes given inline, else the file named, as kubectl prefers them."""
        if data := self.text(f"{key}-data"):
            try:
                return base64.b64decode(data, validate=True)
            except (binascii.Error, ValueError) as error:
                raise self.error(f"{key}-data", "is not base64") from error
        path = self.path(key)
        if path is not None and not path.is_file():
            raise self.error(key, f"{path} does not exist")
        return path

    def error(self, key: str, problem: str) -> ConfigError:
        return ConfigError(f"kubeconfig {self._source}: {self.label}: {key} {problem}")


def from_files(paths: str, *, context: str | None = None) -> Access:
    """Read the kubeconfig, or several joined as ``KUBECONFIG`` joins them.

    Raises:
        ConfigError: none of them exists, or one cannot be read or lacks something.
    """
    names = [str(Path(name).expanduser()) for name in paths.split(os.pathsep) if name]
    existing = [name for name in names if Path(name).exists()]
    if not existing:
        raise ConfigError(f"kubeconfig {paths}: no such file")
    for name in existing:
        _check(name)
    library = kubeconfig_import.modules().kube_config
    merger = library.KubeConfigMerger(os.pathsep.join(existing))
    return _access(
        os.pathsep.join(existing), merger.config, context, base_path=None, persist=merger.save_changes
    )


def from_dict(data: Mapping[str, Any], *, context: str | None = None) -> Access:
    """Read a kubeconfig that is parsed already. Raises like :func:`from_files`."""
    library = kubeconfig_import.modules().kube_config
    return _access("given", library.ConfigNode("kubeconfig", dict(data)), context, base_path="")


def _check(name: str) -> None:
    try:
        data = yaml.load(Path(name).read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506  # a safe one
    except OSError as error:
        raise ConfigError(f"kubeconfig {name}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"kubeconfig {name}: not YAML: {redacted(error)}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"kubeconfig {name}: is empty or no map")
    for part in ("clusters", "contexts", "users"):
        entries = data.get(part) or []
        if not isinstance(entries, list) or not all(isinstance(e, dict) and "name" in e for e in entries):
            raise ConfigError(f"kubeconfig {name}: {part} is no list of named entries")


def _access(
    source: str, config: Any, context: str | None, *, base_path: str | None, persist: Any = None
) -> Access:
    library = kubeconfig_import.modules()
    name = context or config.safe_get("current-context")
    if not name:
        raise ConfigError(f"kubeconfig {source}: current-context is not set")
    try:
        entry = _find(source, config, "contexts", str(name))
        values = entry.safe_get("context") or {}
        cluster = _entry(source, config, "cluster", str(values.get("cluster") or ""), base_path)
        user = _entry(source, config, "user", str(values.get("user") or ""), base_path)
        loader = library.kube_config.KubeConfigLoader(
            config, active_context=str(name), config_base_path=base_path, config_persister=_persister(persist)
        )
    except library.config_exception.ConfigException as error:
        raise ConfigError(f"kubeconfig {source}: {redacted(error)}") from error
    return Access(source, loader, cluster, user, str(values.get("namespace") or ""))


def _entry(source: str, config: Any, what: str, name: str, base_path: str | None) -> _Entry:
    if not name and what == "user":
        return _Entry(source, "no user", {}, Path())
    node = _find(source, config, f"{what}s", name)
    folder = Path(node.path).absolute().parent if base_path is None and node.path else Path(base_path or "")
    return _Entry(source, f"{what} {name!r}", node.safe_get(what) or {}, folder)


def _find(source: str, config: Any, part: str, name: str) -> Any:
    entries = config[part] if config.safe_get(part) else None
    node = entries.get_with_name(name, safe=True) if entries is not None else None
    if node is None:
        raise ConfigError(f"kubeconfig {source}: {part.removesuffix('s')} {name!r} is not defined")
    return node


def _persister(save: Any) -> Any:
    """Keep a login's new tokens in the file, as kubectl does; a file we may not write is no error."""
    if save is None:
        return None

    def persist(_: Any) -> None:
        try:
            save()
        except OSError:
            return

    return persist


def _bad_address(host: str) -> str:
    """Return what is wrong with a server's address, or nothing."""
    try:
        address = urlsplit(host)
        port = address.port
    except ValueError as error:
        # The reason may quote what stands before an "@", which is a password.
        return "is no address" if "@" in host else f"is no address: {error}"
    if address.scheme not in ("http", "https"):
        return "begins with neither https:// nor http://"
    if not address.hostname or port == 0:
        return "lacks a host or a port"
    return ""
