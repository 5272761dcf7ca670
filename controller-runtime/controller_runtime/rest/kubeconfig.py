# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reading a kubeconfig: files are merged and checked, and one context is selected, as :class:`.access.Access`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from controller_runtime.apis.machinery import yaml
from controller_runtime.apis.machinery.base import JSON

from . import kubeconfig_import
from .access import Access, Entry
from .errors import ConfigError
from .kubeconfig_import import Node
from .login import redacted


def from_files(paths: str, *, context: str | None = None) -> Access:
    """Read a kubeconfig, or several separated as in ``KUBECONFIG``.

    Raises:
        ConfigError: no file exists, or one cannot be read or is incomplete.
    """
    try:
        names = [str(Path(name).expanduser()) for name in paths.split(os.pathsep) if name]
    except RuntimeError as error:  # the home directory of "~" or "~name" is unknown
        raise ConfigError(f"kubeconfig {paths}: {redacted(error)}") from error
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


def from_dict(data: Mapping[str, JSON], *, context: str | None = None) -> Access:
    """Read a parsed kubeconfig. Raises like :func:`from_files`."""
    library = kubeconfig_import.modules().kube_config
    return _access("given", library.ConfigNode("kubeconfig", dict(data)), context, base_path="")


def _check(name: str) -> None:
    try:
        data = yaml.load(Path(name).read_bytes(), strict=False)
    except OSError as error:
        raise ConfigError(f"kubeconfig {name}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"kubeconfig {name}: not YAML: {redacted(error)}") from error
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


def _access(
    source: str,
    config: Node,
    context: str | None,
    *,
    base_path: str | None,
    persist: Callable[[], object] | None = None,
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


def _entry(source: str, config: Node, role: str, name: str, base_path: str | None) -> Entry:
    if not name and role == "user":
        return Entry(source, "no user", {}, Path())
    node = _find(source, config, f"{role}s", name)
    folder = Path(node.path).absolute().parent if base_path is None and node.path else Path(base_path or "")
    return Entry(source, f"{role} {name!r}", node.safe_get(role) or {}, folder)


def _find(source: str, config: Node, part: str, name: str) -> Node:
    entries = config[part] if config.safe_get(part) else None
    node = entries.get_with_name(name, safe=True) if entries is not None else None
    if node is None:
        raise ConfigError(f"kubeconfig {source}: {part.removesuffix('s')} {name!r} is not defined")
    return node


def _persister(save: Callable[[], object] | None) -> Callable[[object], None] | None:
    """Return a function that writes renewed tokens to the file, as kubectl does, if the file is writable."""
    if save is None:
        return None

    def persist(_: object) -> None:
        try:
            save()
        except OSError:
            return

    return persist
