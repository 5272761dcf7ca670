# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The one place that imports kubernetes-asyncio, without its 1,260 generated modules.

Its ``config`` package is what we use: kubeconfig files, exec plugins, OIDC and in-cluster settings. But
importing any part of the distribution runs ``kubernetes_asyncio/__init__.py``, which loads a model class
for every API type: 30 MiB and 120 ms for nothing. ``config`` itself needs two names of ``client``,
``ApiClient`` (to build clients we do not build) and ``Configuration`` (a bag of attributes).

So while ``config`` is imported, two empty packages stand in for ``kubernetes_asyncio`` and
``kubernetes_asyncio.client``. Afterwards every entry is taken out of ``sys.modules`` again: a program that
imports the real distribution beside us gets the real one. An OIDC login speaks HTTP by aiohttp, which is as large as
all the rest: its module is imported when somebody logs in by it. ``test_kubeconfig_import.py`` holds a new release
to these assumptions.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, NamedTuple

_ROOT: Final = "kubernetes_asyncio"
_LOGIN: Final = f"{_ROOT}.config.openid"
_lock: Final = threading.Lock()
_ours: Final[dict[str, types.ModuleType]] = {}
"""Modules of the distribution that know our stand-ins."""


class Modules(NamedTuple):
    """The modules of the distribution that we use."""

    kube_config: Any
    incluster_config: Any
    config_exception: Any


class _Unused:
    """Stands where ``config`` names ``ApiClient`` and ``Configuration``."""


@lru_cache(maxsize=1)
def modules() -> Modules:
    """Return the distribution's ``config`` modules; they are loaded at the first call.

    Raises:
        ImportError: the distribution is missing, or its ``config`` needs more than it did.
    """
    with _lock:
        if _ROOT in sys.modules:
            return _load()
        with _bare():
            sys.modules[_LOGIN] = login = types.ModuleType(_LOGIN)
            login.__dict__["OpenIDRequestor"] = _login
            return _load()


def _login(*args: Any, **kwargs: Any) -> Any:
    """Return what the library logs in to an OIDC issuer with."""
    with _lock, _bare():
        sys.modules.pop(_LOGIN)
        return importlib.import_module(_LOGIN).OpenIDRequestor(*args, **kwargs)


@contextmanager
def _bare() -> Iterator[None]:
    """Let modules of the distribution be imported, and find each other, without its ``client``; leave none behind."""
    spec = importlib.util.find_spec(_ROOT)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"{_ROOT} is not installed")
    folder = spec.submodule_search_locations[0]
    if not _ours:
        root = _package(_ROOT, folder)
        client = _package(f"{_ROOT}.client", f"{folder}/client")
        client.__dict__.update(ApiClient=_Unused, Configuration=_Unused)
        root.__dict__["client"] = client
        _ours.update({_ROOT: root, client.__name__: client})
    theirs = _taken_out()
    sys.modules.update(_ours)
    try:
        yield
    finally:
        _ours.update(_taken_out())
        sys.modules.update(theirs)


def _taken_out() -> dict[str, types.ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == _ROOT]
    return {name: sys.modules.pop(name) for name in names}


def _load() -> Modules:
    return Modules(
        *(importlib.import_module(f"{_ROOT}.config.{name}") for name in Modules._fields),
    )


def _package(name: str, folder: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__path__ = [folder]
    return module
