# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The settings of the pod grouper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from controller_runtime.machinery import NamespacedName

from pkg.apis.config.v1alpha1 import Configuration
from pkg.constants import kai

from .podgroup import Rules

AUTO: Final = "auto"
"""The value of the setting ``rules`` that selects the rules of the served PodGroup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the controller and of all groupers. Empty labels select all pods and all namespaces."""

    scheduler_name: str = kai.SCHEDULER_NAME
    queue_label_key: str = kai.QUEUE_LABEL_KEY
    node_pool_label_key: str = kai.NODE_POOL_LABEL_KEY
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    max_concurrent_reconciles: int = kai.MAX_CONCURRENT_RECONCILES
    search_legacy_pod_groups: bool = True
    knative_gang_schedule: bool = True
    default_priorities: NamespacedName | None = None
    """The ConfigMap with the defaults of each kind of workload."""
    rules: Rules | None = None
    """The rules of grouping. If None, the rules of the PodGroup that the API server serves apply."""

    @classmethod
    def of(cls, cfg: Configuration) -> Self:
        """Return the settings of a defaulted and valid Configuration."""
        said = cfg.pod_grouper
        named, priorities = said.default_priorities_config_map, None
        if named is not None and named.name and named.namespace:
            priorities = NamespacedName(named.namespace, named.name)
        return cls(
            scheduler_name=said.scheduler_name or "",
            queue_label_key=said.queue_label_key or "",
            node_pool_label_key=said.node_pool_label_key or "",
            namespace_labels=said.namespace_label_selector or {},
            pod_labels=said.pod_label_selector or {},
            max_concurrent_reconciles=said.max_concurrent_reconciles or kai.MAX_CONCURRENT_RECONCILES,
            search_legacy_pod_groups=bool(said.search_legacy_pod_groups),
            knative_gang_schedule=bool(said.knative_gang_schedule),
            default_priorities=priorities,
            rules=None if said.rules in (None, "", AUTO) else Rules(said.rules),
        )
