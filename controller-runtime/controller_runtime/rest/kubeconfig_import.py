# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Imports kubernetes-asyncio without its 1,260 generated modules; no other module imports it.

This project uses its ``config`` package, which merges kubeconfig files. But importing any part of the
distribution runs ``kubernetes_asyncio/__init__.py``, which loads a model class for every API type: 30 MiB and 120 ms
that are not needed. ``config`` itself imports only two names from ``client``: ``ApiClient``, which is not used here,
and ``Configuration``, a plain set of attributes.

While ``config`` is imported, two empty packages replace ``kubernetes_asyncio`` and ``kubernetes_asyncio.client``.
Afterwards these packages and all modules loaded below them are removed from ``sys.modules``, so a program that also
imports the distribution gets the real one. ``config`` also imports aiohttp (about 15 MiB), which it never uses here.
``test_kubeconfig_import.py`` checks these assumptions against each release.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import types
from functools import lru_cache
from typing import IO, Final, NamedTuple, Protocol

from controller_runtime.machinery import JSON, yaml

_ROOT: Final = "kubernetes_asyncio"
_LATER: Final = "aiohttp"
"""A package that ``config`` imports but rarely uses; it is loaded on first use."""
_lock: Final = threading.Lock()


class Modules(NamedTuple):
    """The modules of the distribution that this project uses."""

    kube_config: types.ModuleType
    config_exception: types.ModuleType


class Node(Protocol):
    """A map or list in a kubeconfig; ``path`` is the file that defines it."""

    path: str | None

    def safe_get(self, key: str) -> JSON:
        """Return the value at ``key``, or None."""

    def get_with_name(self, name: str, safe: bool = False) -> Node | None:
        """Return the entry of that name in a list."""

    def __getitem__(self, key: str) -> Node:
        """Return the map or list at ``key``."""


class _Unused:
    """Replaces ``ApiClient`` and ``Configuration``, which ``config`` imports."""


class _Later(types.ModuleType):
    """A stand-in for a module. The module itself is loaded on first use.

    The annotations that are evaluated while ``config`` is imported do not load it.
    """

    def __getattr__(self, name: str) -> object:
        if sys.modules.get(self.__name__) is self:
            return _Unused
        try:
            module = importlib.import_module(self.__name__)
        except ImportError as error:
            raise ImportError(
                f"an OIDC login needs the package {self.__name__}, which is not installed"
            ) from error
        return getattr(module, name)


@lru_cache(maxsize=1)
def modules() -> Modules:
    """Return the distribution's ``config`` modules, which the first call loads.

    Raises:
        ImportError: the distribution is missing, or its ``config`` has an unexpected dependency.
    """
    with _lock:
        if _ROOT in sys.modules:
            return _imported()
        spec = importlib.util.find_spec(_ROOT)
        if spec is None or not spec.submodule_search_locations:
            raise ImportError(f"{_ROOT} is not installed")
        folder = spec.submodule_search_locations[0]
        client = _package(f"{_ROOT}.client", f"{folder}/client", ApiClient=_Unused, Configuration=_Unused)
        stand_ins = {client.__name__: client, _ROOT: _package(_ROOT, folder, client=client)}
        if _LATER not in sys.modules:
            stand_ins[_LATER] = _Later(_LATER)
        sys.modules.update(stand_ins)
        try:
            found = _imported()
            vars(found.kube_config)["yaml"] = _yaml()
            return found
        finally:
            for name in [*sys.modules]:
                if name in stand_ins or name.startswith(f"{_ROOT}."):
                    del sys.modules[name]


def _yaml() -> types.SimpleNamespace:
    """Return a replacement for PyYAML in ``config``. Its reader limits the input."""

    def safe_load(file: IO[str]) -> JSON:
        return yaml.load(file.read(), strict=False)

    def safe_dump(data: JSON, file: IO[str], **_: object) -> None:
        file.write(yaml.dump(data))

    return types.SimpleNamespace(safe_load=safe_load, safe_dump=safe_dump)


def _imported() -> Modules:
    return Modules(*(importlib.import_module(f"{_ROOT}.config.{name}") for name in Modules._fields))


def _package(name: str, folder: str, **names: object) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__path__ = [folder]
    vars(module).update(names)
    return module
