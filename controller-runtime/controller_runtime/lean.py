# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A cheap start of a program: its ``main`` calls these functions before and after it imports the rest.

Importing this module has no effect.

::

    from controller_runtime import lean

    with lean.importing():
        import my_operator

prometheus_client is loaded module by module: its ``__init__`` imports HTTP servers and clients of its own, 40 modules
that a manager never calls. A program that uses other names of the package, such as ``push_to_gateway``, gets them as
usual; the rest is loaded then.

structlog is loaded module by module, too. Its ``__init__`` and its configuration import a console for people at a
terminal, with rich and colorama if they are installed, tracebacks and pickle. :func:`controller_runtime.log.configure`
works without them. A program that uses structlog itself gets all of it as usual, configured by then.

:func:`compile_on_use` imports a package without compiling its regular expressions: PyYAML's parser in C does not use
those of the parser in Python, one of which takes 5 ms.

Modules are found by one list of each folder (:mod:`controller_runtime.finder`), a sixth less CPU than in Python's
own search.

Garbage collection is off while modules load, kinds build their decoders and caches fill: those objects stay, and
scanning them repeatedly takes a tenth of the start. What the modules made is excluded from all later collections: the
first would scan it all at once. A program that disables collections until its caches are full adds a
:class:`Collector` to its manager.

kubernetes-asyncio's generated models need no call: :mod:`controller_runtime.rest.kubeconfig_import` does not load them.
"""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.util
import re
import sys
import threading
import types
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel

from . import finder

if TYPE_CHECKING:
    from pydantic import BaseModel

_LOADED_AFTER: Final = 1.0
"""Seconds after the caches are full: by then the first reconciles are done."""
_AT_LAST: Final = 30.0
"""Seconds after which there are collections even if caches do not fill."""


def load_without(load: str, *names: str) -> None:
    """Import ``load`` as if ``names`` were not installed, except those that are loaded already."""
    if load in sys.modules:
        return
    absent = [name for name in names if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]  # the import system's marker for a missing module
    try:
        importlib.import_module(load)
    finally:
        for name in absent:
            del sys.modules[name]


def load_parts(package: str) -> None:
    """Import ``package`` without running its ``__init__``, unless it is imported already.

    Its modules can be imported one by one. The first use of any other name of the package runs ``__init__``.

    Raises:
        ModuleNotFoundError: ``package`` is not installed.
    """
    if package in sys.modules:
        return
    spec = importlib.util.find_spec(package)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    module, lock, run = importlib.util.module_from_spec(spec), threading.RLock(), spec.loader.exec_module

    def get(name: str) -> object:
        if not name.startswith("_") and importlib.util.find_spec(f"{package}.{name}") is not None:
            return importlib.import_module(f"{package}.{name}")
        with lock:
            if module.__dict__.pop("__getattr__", None) is not None:
                run(module)
        return types.ModuleType.__getattribute__(module, name)

    module.__dict__["__getattr__"] = get
    sys.modules[package] = module


def load_except(package: str, part: str) -> None:
    """Import ``package`` without its module ``part``, unless it is imported already.

    The first use of a name that ``package`` takes from ``part`` imports it. While ``package`` is imported, such names
    are placeholders.
    """
    if package in sys.modules:
        return
    taken = object()
    placeholder = types.ModuleType(part)
    placeholder.__dict__["__getattr__"] = lambda _: taken
    sys.modules[part] = placeholder
    try:
        module = importlib.import_module(package)
    finally:
        del sys.modules[part]
    later = frozenset(name for name, value in vars(module).items() if value is taken)
    for name in later:
        delattr(module, name)

    def get(name: str) -> object:
        if name in later:
            return getattr(importlib.import_module(part), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    module.__dict__["__getattr__"] = get


class _PatternOnUse:
    """A regular expression that the first use of an attribute compiles."""

    def __init__(self, compile_: Callable[[], re.Pattern[Any]]) -> None:
        self._compile = compile_

    def __getattr__(self, name: str) -> object:
        value = getattr(self._compile(), name)
        setattr(self, name, value)
        return value


def compile_on_use(package: str) -> None:
    """Import ``package``, whose regular expressions are compiled on first use, unless it is imported already.

    Its modules must call ``re.compile`` and must not need the class of what it returns.
    """
    if package in sys.modules:
        return
    compile_ = re.compile

    def later(pattern: Any, flags: int = 0) -> object:
        module = sys._getframe(1).f_globals["__name__"]
        if module != package and not module.startswith(f"{package}."):
            return compile_(pattern, flags)
        return _PatternOnUse(functools.cache(functools.partial(compile_, pattern, flags)))

    vars(re)["compile"] = later
    try:
        importlib.import_module(package)
    finally:
        vars(re)["compile"] = compile_


class Collector:
    """A runnable of the manager: once ``ready`` returned, it enables collections, except of the existing objects."""

    def __init__(self, ready: Callable[[], Awaitable[None]]) -> None:
        self._ready = ready

    def need_leader_election(self) -> bool:
        """Return False: a standby starts, too."""
        return False

    async def start(self) -> None:
        """Wait, then enable collections."""
        with anyio.move_on_after(_AT_LAST):
            await self._ready()
            await anyio.sleep(_LOADED_AFTER)
        gc.collect()
        gc.freeze()
        gc.enable()


class Decoders:
    """A runnable of the manager: builds decoders and serializers of ``kinds`` while it waits for the caches' lists.

    Without it, they are built when the first object of a kind is read.
    """

    name = "decoders"

    def __init__(self, *kinds: type[BaseModel]) -> None:
        self._kinds = kinds

    async def warm_up(self) -> None:
        """Build them; other tasks run in between."""
        for kind in self._kinds:
            kind.model_rebuild()
            await anyio.lowlevel.checkpoint()

    async def start(self) -> None:
        """Do nothing: the caches are full."""


@contextmanager
def importing() -> Iterator[None]:
    """Stop collections while the block imports the program, and load packages without what it does not use.

    Later collections exclude the objects that exist at the end of the block.
    """
    gc.disable()
    try:
        with finder.listing_once():
            load_parts("prometheus_client")
            load_parts("structlog")
            yield
    finally:
        gc.freeze()
        gc.enable()
