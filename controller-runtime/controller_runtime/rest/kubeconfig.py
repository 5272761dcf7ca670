# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Read kubeconfigs: files are merged and checked, and one context is selected, with its server, TLS and identity.

The semantics are those of client-go; logins are in ``login``. Certificates stay in memory instead of being written to
temporary files.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import copy
import dataclasses
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from controller_runtime import log
from controller_runtime.machinery import JSON, yaml

from . import http1, login, proxy
from .config import Config, Impersonation
from .credentials import (
    Anonymous,
    Basic,
    Credentials,
    Issued,
    PluginCredentials,
    StaticToken,
    TokenFile,
    has_expired,
    redacted,
)
from .errors import ConfigError
from .tls import IssuedPair, TLSConfig

_EXTENSION: Final = "client.authentication.k8s.io/exec"
"""The extension of a cluster that is passed to exec plugins."""
_EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_SECRETS: Final = frozenset({"exec", "auth-provider", "tokenFile", "token", "username", "password"})

_log: Final = log.logger_from("rest")


class Access:
    """One context: its cluster and its user. Error messages contain ``source``."""

    def __init__(
        self, source: str, cluster: NamedEntry, user: NamedEntry, namespace: str, save: Callable[[], None]
    ) -> None:
        """Make an access; ``save`` writes tokens that an issuer renewed to the files."""
        self.source = source
        self.namespace = namespace
        self._save = save
        self._cluster = cluster
        self._user = user
        self._issued: IssuedPair | None = None

    async def config(self, environ: Mapping[str, str]) -> Config:
        """Return the connection; ``environ`` supplies the proxy if the kubeconfig has none.

        Raises:
            ConfigError: a setting is missing or invalid, or a login failed.
        """
        credentials = await self.credentials()
        return Config(
            host=self.host,
            tls=self.tls(),
            credentials=credentials,
            namespace=self.namespace,
            proxy=self.proxy or proxy.from_environment(self.host, environ),
            impersonate=self.impersonated(),
        )

    @property
    def host(self) -> str:
        """The server's address.

        As in client-go, an address without a scheme gets https if there are TLS settings, otherwise http.
        """
        host = self._cluster.text("server").rstrip("/")
        if not host:
            raise ConfigError(f"kubeconfig {self.source}: {self._cluster.label}: server is missing")
        if "://" not in host:
            host = f"{'https' if self._mentions_tls() else 'http'}://{host}"
        scheme, found, rest = host.partition("://")
        host = scheme.lower() + found + rest
        if problem := _bad_address(host):
            raise self._cluster.error("server", f"{http1.without_credentials(host)!r} {problem}")
        # Like other credentials, a user name and password in the URL are not sent over plain HTTP.
        return host if host.startswith("https:") else http1.without_credentials(host)

    @property
    def proxy(self) -> str:
        """The proxy's address, or an empty string."""
        proxy = self._cluster.text("proxy-url")
        if proxy and (problem := _bad_address(proxy)):
            raise self._cluster.error("proxy-url", f"{http1.without_credentials(proxy)!r} {problem}")
        return proxy

    def _mentions_tls(self) -> bool:
        """Return True if at least one TLS setting is present."""
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
        """Return the TLS settings after checking that they load, or None for plain HTTP.

        Call :meth:`credentials` first, because a login plugin may issue the client certificate.
        """
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

    def impersonated(self) -> Impersonation | None:
        """Return the user to impersonate, or None.

        Raises:
            ConfigError: a field has the wrong type, or ``as`` is missing while other fields are set.
        """
        user = self._user
        name, uid = user.text("as"), user.text("as-uid")
        groups = user.texts("as-groups", user.values.get("as-groups"))
        given = user.values.get("as-user-extra") or {}
        if not isinstance(given, Mapping):
            raise user.error("as-user-extra", "must be a map")
        extra = {str(key): user.texts("as-user-extra", values) for key, values in given.items()}
        if not name and (uid or groups or extra):
            raise user.error("as", "is required with as-uid, as-groups and as-user-extra")
        return Impersonation(name, uid, groups, extra) if name else None

    async def credentials(self) -> Credentials:
        """Return the user's credentials after checking that they can be obtained.

        For plain HTTP, return anonymous credentials.

        Raises:
            ConfigError: a plugin failed, or a file is missing.
        """
        user = self._user
        if not self.host.startswith("https:"):
            if any(user.values.get(each) for each in _SECRETS):
                _log.warning(
                    "Credentials are not sent over plain HTTP", kubeconfig=self.source, server=self.host
                )
            return Anonymous()
        credentials: Credentials
        plugin, provider = user.values.get("exec"), user.values.get("auth-provider")
        if plugin is not None:
            _check_exec(user)
            if provider is not None:
                raise user.error("auth-provider", "cannot be combined with exec")
        id_token = self._id_token(provider) if provider is not None else None
        if path := user.path("tokenFile"):
            credentials = TokenFile(path)
        elif token := user.text("token"):
            try:
                credentials = StaticToken(token)
            except ConfigError as error:
                raise user.error("token", str(error).removeprefix("the token ")) from error
        elif user.text("username") or user.text("password"):
            credentials = Basic(user.text("username"), user.text("password"))
        elif id_token is not None:
            credentials = self._renewed_by(id_token)
        elif plugin is not None and not (user.pem("client-certificate") and user.pem("client-key")):
            credentials = self._renewed_by(lambda: login.run_plugin(plugin, self._shown_to(plugin)))
        else:
            if not (user.pem("client-certificate") or user.pem("client-key")):
                _log.warning(
                    "No credentials: the API server treats this client as anonymous",
                    kubeconfig=self.source,
                    user=user.label,
                )
            return Anonymous()
        await credentials.headers()
        if isinstance(credentials, PluginCredentials):
            self._issued = credentials.issued
        return credentials

    def _renewed_by(self, logs_in: Callable[[], Awaitable[Issued]]) -> PluginCredentials:
        return PluginCredentials(f"kubeconfig {self.source}: {self._user.label}", logs_in)

    def _shown_to(self, plugin: Mapping[str, JSON]) -> Mapping[str, JSON] | None:
        """Return what a plugin receives about the cluster, or None if it does not ask for it."""
        if not plugin.get("provideClusterInfo"):
            return None
        cluster = self._cluster
        ca = cluster.pem("certificate-authority")
        known = {
            "server": self.host,
            "tls-server-name": cluster.text("tls-server-name"),
            "insecure-skip-tls-verify": self._skips_verifying(),
            "certificate-authority-data": ca.read_bytes() if isinstance(ca, Path) else ca,
            "proxy-url": self.proxy,
            "disable-compression": cluster.values.get("disable-compression"),
        }
        extensions = {each["name"]: each.get("extension") for each in cluster.values.get("extensions") or ()}
        return {key: value for key, value in known.items() if value} | {"config": extensions.get(_EXTENSION)}

    def _id_token(self, provider: JSON) -> Callable[[], Awaitable[Issued]]:
        """Return the login of an OIDC user. It returns the ID token of the kubeconfig while the token is valid.

        A renewed token is also written to the kubeconfig.

        Raises:
            ConfigError: the provider is not known, or a setting is missing or has the wrong type.
        """
        name = provider.get("name") if isinstance(provider, Mapping) else None
        if name != "oidc":
            raise self._user.error(
                "auth-provider:", f"no Auth Provider found for name {name!r}; use an exec plugin"
            )
        config = provider.get("config")
        if not isinstance(config, dict):
            raise self._user.error("auth-provider.config", "must be a map")
        settings = NamedEntry(self.source, f"{self._user.label}: auth-provider", config, self._user.folder)
        for key in ("idp-issuer-url", "client-id"):
            if not settings.text(key):
                raise settings.error(key, "is missing")
        tls = TLSConfig(ca=settings.pem("idp-certificate-authority"))
        issuer = login.Issuer(
            settings.text("idp-issuer-url"), settings.text("client-id"), settings.text("client-secret"), tls
        )

        async def log_in() -> Issued:
            token, renewal = settings.text("id-token"), settings.text("refresh-token")
            if not token or has_expired(login.expiry(token)):
                if not renewal:
                    raise ConfigError("no valid id-token, and cannot refresh without refresh-token")
                config["id-token"], config["refresh-token"] = await issuer.renewed(renewal)
                self._save()
                token = settings.text("id-token")
            return Issued(token, expiry=login.expiry(token))

        return log_in


class NamedEntry:
    """A named cluster or user, and the folder to which its paths are relative."""

    def __init__(self, source: str, label: str, values: Mapping[str, JSON], folder: Path) -> None:
        self.label = label
        self.values = values
        self._source = source
        self.folder = folder

    def text(self, key: str) -> str:
        """Return a string, or an empty one if ``key`` is not set. Raises ConfigError for another type."""
        value = self.values.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.error(key, "must be a string")
        return value

    def texts(self, key: str, values: JSON) -> tuple[str, ...]:
        """Return a list of strings. Raises ConfigError for another type."""
        if values is None:
            return ()
        if not isinstance(values, list) or not all(isinstance(each, str) for each in values):
            raise self.error(key, "must be a list of strings")
        return tuple(values)

    def path(self, key: str) -> Path | None:
        """Return a path, or None if ``key`` is not set."""
        value = self.text(key)
        return self.folder / value if value else None

    def pem(self, key: str) -> bytes | Path | None:
        """Return the inline bytes or, if there are none, the path of the file. kubectl does the same."""
        if data := self.text(f"{key}-data"):
            try:
                return base64.b64decode(data.replace("\r", "").replace("\n", ""), validate=True)
            except (binascii.Error, ValueError) as error:
                raise self.error(f"{key}-data", "is not base64") from error
        path = self.path(key)
        if path is not None and not path.is_file():
            raise self.error(key, f"{path} does not exist")
        return path

    def error(self, key: str, problem: str) -> ConfigError:
        """Return an error about ``key``."""
        return ConfigError(f"kubeconfig {self._source}: {self.label}: {key} {problem}")


def _check_exec(user: NamedEntry) -> None:
    """Raise ConfigError for an invalid field of a plugin. A relative path is relative to the kubeconfig."""
    plugin = user.values["exec"]
    if not isinstance(plugin, dict) or not isinstance(command := plugin.get("command"), str) or not command:
        raise user.error("exec", "must be a map with a command")
    if os.sep in command:
        plugin["command"] = str(user.folder / command)
    if plugin.get("apiVersion") not in _EXEC_VERSIONS:
        raise user.error("exec.apiVersion", f"must be {' or '.join(_EXEC_VERSIONS)}")
    if plugin.get("interactiveMode") not in (None, "", "Never", "IfAvailable", "Always"):
        raise user.error("exec.interactiveMode", "must be Never, IfAvailable or Always")
    user.texts("exec.args", plugin.get("args"))
    variables = plugin.get("env")
    if variables is not None and not (
        isinstance(variables, list)
        and all(
            isinstance(each, Mapping)
            and isinstance(each.get("name"), str)
            and isinstance(each.get("value"), str)
            for each in variables
        )
    ):
        raise user.error("exec.env", "must be a list of names and values, both strings")


def _bad_address(host: str) -> str:
    """Return why a server's address is invalid, or an empty string."""
    try:
        address = urlsplit(host)
        port = address.port
    except ValueError as error:
        # The reason may quote the text before an "@", which may be a password.
        return "is not a valid address" if "@" in host else f"is not a valid address: {error}"
    if address.scheme not in ("http", "https"):
        return "must begin with https:// or http://"
    if not address.hostname or port == 0:
        return "has no valid host or port"
    return ""


def from_files(paths: str, *, context: str | None = None) -> Access:
    """Read one kubeconfig, or several whose paths are separated as in ``KUBECONFIG``.

    Raises:
        ConfigError: no file exists, or a file cannot be read or is incomplete.
    """
    try:
        names = [str(Path(name).expanduser()) for name in paths.split(os.pathsep) if name]
    except RuntimeError as error:  # the home directory of "~" or "~name" is unknown
        raise ConfigError(f"kubeconfig {paths}: {redacted(error)}") from error
    existing = [name for name in names if Path(name).exists()]
    if not existing:
        raise ConfigError(f"kubeconfig {paths}: no such file")
    files = {name: _read(name) for name in existing}
    known = copy.deepcopy(files)

    def save() -> None:
        with contextlib.suppress(OSError):  # a file may not be writable
            for name, data in files.items():
                if data != known[name]:
                    Path(name).write_text(yaml.dump(data))
                    known[name] = copy.deepcopy(data)

    return _access(os.pathsep.join(existing), files, context, save)


def from_dict(data: Mapping[str, JSON], *, context: str | None = None) -> Access:
    """Read a parsed kubeconfig. Raises like :func:`from_files`."""
    return _access("given", {"": _checked("given", dict(data))}, context, lambda: None)


def _read(name: str) -> dict[str, JSON]:
    """Return the content of a file. Raises ConfigError for a file that is not a kubeconfig."""
    try:
        return _checked(name, yaml.load(Path(name).read_bytes(), strict=False))
    except OSError as error:
        raise ConfigError(f"kubeconfig {name}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"kubeconfig {name}: not YAML: {redacted(error)}") from error


def _checked(name: str, data: JSON) -> dict[str, JSON]:
    if not isinstance(data, dict):
        raise ConfigError(f"kubeconfig {name}: is empty or not a map")
    for part in ("clusters", "contexts", "users"):
        entries = data.get(part) or []
        if not isinstance(entries, list) or not all(isinstance(e, dict) and "name" in e for e in entries):
            raise ConfigError(f"kubeconfig {name}: {part} must be a list of named entries")
        role = part.removesuffix("s")
        for entry in entries:
            if not isinstance(entry.get(role), dict | None):
                raise ConfigError(f"kubeconfig {name}: {role} {entry['name']!r}: {role} must be a map")
    return data


def _access(
    source: str, files: Mapping[str, dict[str, JSON]], context: str | None, save: Callable[[], None]
) -> Access:
    """Return the access of a context in merged files: the first file that has a name or a current context decides."""
    name = context or next(filter(None, (data.get("current-context") for data in files.values())), None)
    if not name:
        raise ConfigError(f"kubeconfig {source}: current-context is not set")

    def find(role: str, name: str) -> NamedEntry:
        for file, data in files.items():
            for entry in data.get(f"{role}s") or ():
                if entry["name"] == name:
                    folder = Path(file).absolute().parent if file else Path()
                    return NamedEntry(source, f"{role} {name!r}", entry.get(role) or {}, folder)
        raise ConfigError(f"kubeconfig {source}: {role} {name!r} is not defined")

    values = find("context", str(name)).values
    cluster, user = str(values.get("cluster") or ""), str(values.get("user") or "")
    if not cluster:
        raise ConfigError(f"kubeconfig {source}: context {str(name)!r} names no cluster")
    user_entry = find("user", user) if user else NamedEntry(source, "no user", {}, Path())
    return Access(source, find("cluster", cluster), user_entry, str(values.get("namespace") or ""), save)
