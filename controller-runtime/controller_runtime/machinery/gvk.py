# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Group, version, kind and resource: the names that identify a kind in the API."""

from __future__ import annotations

from typing import NamedTuple


class GroupKind(NamedTuple):
    """A kind without its version; renders as Go does, ``TrainJob.trainer.kubeflow.org``."""

    group: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


class GVK(NamedTuple):
    """Group, version and kind; the core group is the empty string."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """``apiVersion`` on the wire: ``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_kind(self) -> GroupKind:
        """The same kind in any version."""
        return GroupKind(self.group, self.kind)

    @classmethod
    def parse(cls, api_version: str, kind: str) -> GVK:
        """Return the GVK of an ``apiVersion`` and a ``kind``.

        Raises:
            ValueError: ``api_version`` has more than one slash.
        """
        group, slash, version = api_version.rpartition("/")
        if "/" in group or (slash and not version):
            raise ValueError(f"unexpected apiVersion: {api_version!r}")
        return cls(group, version, kind)

    def __str__(self) -> str:
        return f"{self.api_version}, Kind={self.kind}"


class Resource(NamedTuple):
    """The resource of a kind: its plural name in URLs, and whether it is namespaced."""

    group: str
    version: str
    plural: str
    namespaced: bool

    @property
    def group_resource(self) -> str:
        """``plural.group``, as used in error messages and metrics."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class NamespacedName(NamedTuple):
    """The key of an object; ``namespace`` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    @classmethod
    def of(cls, pair: object) -> NamespacedName:
        """Return a (namespace, name) pair as a key.

        Raises:
            TypeError: it is not a pair. A name alone is not; its characters must not be mistaken for one.
        """
        if isinstance(pair, NamespacedName):
            return pair
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(f"the key {pair!r} must be a pair, (namespace, name); the namespace may be empty")
        return cls(*pair)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name
