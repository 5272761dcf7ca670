# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Config: the server's address, its trusted authorities and the client's identity."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

from . import http1
from .credentials import Anonymous, Credentials
from .tls import TLSConfig

_HEADER_NAME: Final = "!#$&'*+-.^_`|~"
"""Characters besides letters and digits that RFC 9110 allows in a header's name; all others are percent-encoded."""
_UNFIT_FOR_HEADER: Final = re.compile(r"[^\x20-\x7e]")


def user_agent(program: str, release: str) -> str:
    """Return ``program/release (os/arch)``; the part before the slash is also the default field manager of writes."""
    named = f"{program}/{release} ({platform.system().lower()}/{platform.machine().lower()})"
    return _UNFIT_FOR_HEADER.sub("_", named)


def default_user_agent() -> str:
    """Return a user agent with the name of the running script or of the package that ``python -m`` runs.

    A program that can be started in several ways should set :attr:`Config.user_agent`.
    """
    started = Path(sys.argv[0] or "python")
    program = started.parent.name if started.name == "__main__.py" else started.name.removesuffix(".py")
    return user_agent(program.replace("/", "_") or "python", importlib.metadata.version("controller-runtime"))


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user on whose behalf requests are made; requires permission for the verb ``impersonate``."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def headers(self) -> list[tuple[str, str]]:
        """Return the impersonation headers; a name may occur more than once."""
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
    """The server's URL: scheme, host and port, and a path if the server is not at the root."""
    tls: TLSConfig | None = None
    credentials: Credentials = field(default_factory=Anonymous)
    user_agent: str = field(default_factory=default_user_agent)
    qps: float = 0
    """Sustained requests per second; zero or less disables throttling."""
    burst: int = 0
    """Maximum number of requests that are sent at once, in excess of :attr:`qps`; values below one count as one."""
    namespace: str = ""
    """The namespace of the kubeconfig's context or, in a pod, the namespace of the pod."""
    proxy: str = ""
    """URL of a proxy. If the kubeconfig has no ``proxy-url``, ``load_config`` reads the URL from the environment."""
    impersonate: Impersonation | None = None
    """The user to impersonate; :attr:`credentials` still authenticate the client itself."""

    @property
    def address(self) -> str:
        """:attr:`host` for logs and errors, without the user name and password that it may contain."""
        return http1.without_credentials(self.host)

    async def refused_because(self) -> str:
        """Return why a server may refuse the credentials, such as an expired certificate, or an empty string."""
        from . import login  # only a client that is refused needs it

        return await login.refused_because(self)

    def __repr__(self) -> str:
        """Return the settings that identify the connection, without keys, tokens and passwords."""
        return (
            f"{type(self).__name__}(host={self.address!r}, tls={self.tls!r}, "
            f"credentials={type(self.credentials).__name__}, user_agent={self.user_agent!r}, qps={self.qps!r}, "
            f"burst={self.burst!r}, namespace={self.namespace!r}, proxy={http1.without_credentials(self.proxy)!r}, "
            f"impersonate={self.impersonate!r})"
        )
