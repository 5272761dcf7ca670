# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Import a package's public names when they are first used. So a program loads only the modules that it uses.

A package declares these names twice, for type checkers and for the interpreter::

    if TYPE_CHECKING:
        from .fake import FakeClient as FakeClient
    else:
        __getattr__, __dir__ = _ondemand.names(__name__, {"fake": ("FakeClient",)})
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterable, Mapping


def names(
    package: str, exports: Mapping[str, Iterable[str]], *, submodules: bool = False
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for ``package``.

    Args:
        package: the name of the package.
        exports: the names to import from each module of the package. If ``package`` is a module itself, a module
            beside it has a dot before its name.
        submodules: whether the package's public modules can be used as names, too.
    """
    modules = {name: module for module, exported in exports.items() for name in exported}

    def get(name: str) -> object:
        if name in modules:
            value = getattr(importlib.import_module(f".{modules[name]}", package), name)
            setattr(importlib.import_module(package), name, value)
            return value
        if (
            submodules
            and not name.startswith("_")
            and importlib.util.find_spec(f"{package}.{name}") is not None
        ):
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        import pkgutil

        module = importlib.import_module(package)
        inside = pkgutil.iter_modules(module.__path__) if submodules else ()
        public = (info.name for info in inside if not info.name.startswith("_"))
        return sorted({*vars(module), *modules, *public})

    return get, listed
