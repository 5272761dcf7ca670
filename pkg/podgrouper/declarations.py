# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Documents that declare how the pods of a kind are grouped, from files and from a ConfigMap.

A document is small YAML or JSON: ::

    apiVersion: config.trainer.kubeflow.org/v1alpha1
    kind: Grouper
    owner: {group: example.com, version: v1, kind: Flock}
    subGroups:
      - {name: leader, podLabels: {role: leader}, minMember: 1}
      - {name: worker, podLabels: {role: worker}, minMember: "spec.workers[*].replicas"}
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from controller_runtime import client, log
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.machinery import GVK, JSON, NamespacedName, names, yaml
from controller_runtime.machinery.errors import NotFoundError

from pkg.apis.config.v1alpha1 import Configuration
from pkg.config import ConfigurationError

from .plugins import Grouper, GroupingError
from .plugins.declared import EACH, Amount, Declaration, DeclaredGrouper, SubGroupRule
from .plugins.defaultgrouper import DefaultGrouper
from .plugins.gonumbers import MAX_INT32

ANY_VERSION: Final = "*"
"""The version of a row or declaration that serves all versions of a kind without one of their own."""
API_VERSION: Final = Configuration.gvk.api_version
KIND: Final = "Grouper"
MOST_BYTES: Final = 64 << 10
"""Maximum size of a document."""
MOST_DOCUMENTS: Final = 100
MOST_SUBGROUPS: Final = 100
_MOST_STEPS: Final = 20
_MOST_VALUES: Final = 10_000
_PATH: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\[\*\])?(\.[A-Za-z_][A-Za-z0-9_-]*(\[\*\])?)*", re.ASCII)
_LONGEST_PATH: Final = 512

_log: Final = log.logger_from("podgrouper")


class DeclarationError(ConfigurationError):
    """A document is invalid. The text is one line with the file or ConfigMap, the document, the line and the field."""


def read_files(paths: Iterable[str]) -> tuple[Declaration, ...]:
    """Return the declarations in files, one in each.

    Raises:
        DeclarationError: a file cannot be read or is invalid, or two declare the same kind.
    """
    declared: dict[GVK, Declaration] = {}
    for path in paths:
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise DeclarationError(f"{path}: cannot be read: {error.strerror or error}") from error
        _add(declared, path, parse(path, text))
    return tuple(declared.values())


def _add(declared: dict[GVK, Declaration], where: str, declaration: Declaration) -> None:
    if declaration.kind in declared:
        raise DeclarationError(f"{where}: owner: {declaration.kind} is declared twice")
    if len(declared) == MOST_DOCUMENTS:
        raise DeclarationError(f"{where}: there are more than {MOST_DOCUMENTS} documents")
    declared[declaration.kind] = declaration


def parse(where: str, text: bytes) -> Declaration:
    """Return the declaration of a document; ``where`` names it in errors.

    Raises:
        DeclarationError: it is invalid.
    """
    if len(text) > MOST_BYTES:
        raise DeclarationError(f"{where}: larger than {MOST_BYTES >> 10} KiB")
    try:
        data = yaml.load_map(text, most_values=_MOST_VALUES)
    except yaml.YAMLError as error:
        raise DeclarationError(f"{where}: {error}") from error
    return _Reader(where, text, data).declaration()


class _Reader:
    """Reads one document strictly."""

    def __init__(self, where: str, text: bytes, data: dict[str, JSON]) -> None:
        self._where = where
        self._text = text
        self._data = data

    def declaration(self) -> Declaration:
        data = self._map(self._data, (), ("apiVersion", "kind", "owner", "minMember", "subGroups"))
        for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
            if data.get(key) != expected:
                self._fail((key,), f"must be {expected}")
        if "minMember" not in data and not data.get("subGroups"):
            self._fail(("minMember",), "is required without subGroups")
        return Declaration(
            self._owner(data.get("owner")),
            self._amount(data["minMember"], ("minMember",)) if "minMember" in data else None,
            self._sub_groups(data.get("subGroups") or []),
        )

    def _owner(self, value: JSON) -> GVK:
        owner = self._map(value, ("owner",), ("group", "version", "kind"))
        kind = GVK(owner.get("group", ""), owner.get("version", ANY_VERSION), owner.get("kind", ""))
        for key, text, valid in (
            ("group", kind.group, names.is_api_group),
            ("version", kind.version, lambda text: text == ANY_VERSION or names.is_api_version(text)),
            ("kind", kind.kind, names.is_kind),
        ):
            if not isinstance(text, str) or not valid(text):
                self._fail(("owner", key), f"must be the {key} of an API")
        return kind

    def _sub_groups(self, value: JSON) -> tuple[SubGroupRule, ...]:
        if not isinstance(value, list) or len(value) > MOST_SUBGROUPS:
            self._fail(("subGroups",), f"must be a list of at most {MOST_SUBGROUPS} subgroups")
        found: dict[str, SubGroupRule] = {}
        for index, item in enumerate(value):
            path = ("subGroups", index)
            data = self._map(item, path, ("name", "podLabels", "minMember"))
            name = data.get("name")
            if not isinstance(name, str) or names.is_dns1123_label(name):
                self._fail((*path, "name"), "must be a DNS label")
            if name in found:
                self._fail((*path, "name"), f'"{name}" is given twice')
            labels = self._map(data.get("podLabels"), (*path, "podLabels"))
            if not labels or not all(isinstance(each, str) for each in labels.values()):
                self._fail((*path, "podLabels"), "must be a map of labels, and not empty")
            amount = self._amount(data.get("minMember", 1), (*path, "minMember"))
            found[name] = SubGroupRule(name, tuple(labels.items()), amount)
        return tuple(found.values())

    def _amount(self, value: JSON, path: yaml.PathSteps) -> Amount:
        if type(value) is int and 1 <= value <= MAX_INT32:
            return Amount(number=value)
        steps: tuple[str, ...] = ()
        if isinstance(value, str) and len(value) <= _LONGEST_PATH and _PATH.fullmatch(value):
            steps = tuple(value.replace(EACH, f".{EACH}").split("."))
        if not 1 <= len(steps) <= _MOST_STEPS:
            self._fail(
                path, "must be a number of pods, or a path such as spec.replicas or spec.groups[*].replicas"
            )
        return Amount(path=steps)

    def _map(self, value: JSON, path: yaml.PathSteps, keys: tuple[str, ...] = ()) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._fail(path, "must be a map")
        for key in value:
            if keys and key not in keys:
                self._fail((*path, key), f"unknown field; the fields are {', '.join(keys)}")
        return value

    def _fail(self, path: yaml.PathSteps, message: str) -> NoReturn:
        line = yaml.line_of(self._text, 1, path)
        field = yaml.render_path(path)
        parts = (self._where, f"line {line}" if line else "", field, message)
        raise DeclarationError(": ".join(filter(None, parts)))


class Declarations:
    """The groupers of declared kinds: of files, read before, and of a ConfigMap, one document in each of its keys."""

    def __init__(
        self,
        default: DefaultGrouper,
        reader: client.Reader,
        files: Iterable[Declaration] = (),
        config_map: NamespacedName | None = None,
    ) -> None:
        self._default = default
        self._reader = reader
        self._files = {each.kind: self._grouper(each) for each in files}
        self._config_map = config_map
        self._version: str | None = None
        self._found: dict[GVK, Grouper] = {}
        self._problem = ""

    def known(self, kind: GVK) -> Grouper | None:
        """Return the grouper of ``kind`` by the files and the ConfigMap as last read."""
        for table in (self._files, self._found):
            if found := table.get(kind) or table.get(kind._replace(version=ANY_VERSION)):
                return found
        return None

    async def grouper_for(self, kind: GVK) -> Grouper | None:
        """Return the grouper of ``kind``, or None if it is not declared.

        Raises:
            GroupingError: it is not declared, and a document of the ConfigMap is invalid: it may be the kind's.
            StatusError, RestError, CacheError: the ConfigMap cannot be read.
        """
        if self._config_map is not None:
            await self._read(self._config_map)
        found = self.known(kind)
        if found is None and self._problem:
            raise GroupingError(self._problem)
        return found

    async def _read(self, key: NamespacedName) -> None:
        try:
            config_map = await self._reader.get(ConfigMap, key)
        except NotFoundError:
            self._version, self._found, self._problem = None, {}, ""
            return
        version = config_map.metadata.resource_version
        if version is None or version != self._version:
            self._version = version
            self._load(f"ConfigMap {key.namespace}/{key.name}", config_map.data or {})

    def _load(self, where: str, data: Mapping[str, str]) -> None:
        declared: dict[GVK, Declaration] = {}
        self._problem = ""
        for name, text in sorted(data.items()):
            try:
                _add(declared, f"{where}, {name}", parse(f"{where}, {name}", text.encode()))
            except DeclarationError as error:
                self._problem = self._problem or str(error)
                _log.error("A grouper is not valid", error=error)
        self._found = {kind: self._grouper(each) for kind, each in declared.items()}

    def _grouper(self, declaration: Declaration) -> Grouper:
        return DeclaredGrouper(self._default, declaration)
