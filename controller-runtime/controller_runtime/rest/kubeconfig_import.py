# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The one place that imports kubernetes-asyncio, without its 1,260 generated modules.

Its ``config`` package is what we use: kubeconfig files, exec plugins, OIDC and in-cluster settings. But
importing any part of the distribution runs ``kubernetes_asyncio/__init__.py``, which loads a model class
for every API type: 30 MiB and 120 ms for nothing. ``config`` itself needs two names of ``client``,
``ApiClient`` (to build clients we do not build) and ``Configuration`` (a bag of attributes).

So while ``config`` is imported, two empty packages stand in for ``kubernetes_asyncio`` and
``kubernetes_asyncio.client``. Afterwards every entry is taken out of ``sys.modules`` again: a program that
imports the real distribution beside us gets the real one. Its OIDC client is all that needs aiohttp, some
15 MiB: that is loaded when a token is first refreshed. ``test_kubeconfig_import.py`` holds a new release to
these assumptions.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import types
from functools import lru_cache
from typing import Any, Final, NamedTuple

_ROOT: Final = "kubernetes_asyncio"
_HTTP: Final = "aiohttp"
_lock: Final = threading.Lock()


class Modules(NamedTuple):
    """The modules of the distribution that we use."""

    kube_config: Any
    incluster_config: Any
    config_exception: Any


class _Unused:
    """Stands where ``config`` names ``ApiClient`` and ``Configuration``."""


class _Later(types.ModuleType):
    """A module that is loaded when it is used, not when ``config`` names it in its annotations."""

    def __getattr__(self, name: str) -> Any:
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
    """Return the distribution's ``config`` modules; they are loaded at the first call.

    Raises:
        ImportError: the distribution is missing, or its ``config`` needs more than it did.
    """
    with _lock:
        if _ROOT in sys.modules:
            return _load()
        spec = importlib.util.find_spec(_ROOT)
        if spec is None or not spec.submodule_search_locations:
            raise ImportError(f"{_ROOT} is not installed")
        folder = spec.submodule_search_locations[0]
        root = _package(_ROOT, folder)
        client = _package(f"{_ROOT}.client", f"{folder}/client")
        client.__dict__.update(ApiClient=_Unused, Configuration=_Unused)
        root.__dict__["client"] = client
        sys.modules[_ROOT], sys.modules[f"{_ROOT}.client"] = root, client
        later = sys.modules.setdefault(_HTTP, _Later(_HTTP))
        try:
            return _load()
        finally:
            gone = [name for name in sys.modules if name.partition(".")[0] == _ROOT]
            for name in [*gone, _HTTP] if isinstance(later, _Later) else gone:
                del sys.modules[name]


def _load() -> Modules:
    return Modules(
        *(importlib.import_module(f"{_ROOT}.config.{name}") for name in Modules._fields),
    )


def _package(name: str, folder: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__path__ = [folder]
    return module
