# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from controller_runtime import cache
from controller_runtime.apis.core.v1 import ConfigMap, Pod
from controller_runtime.machinery import metadata_only

from pkg.apis.config.v1alpha1 import Configuration, set_defaults
from pkg.apis.kai.v2alpha2 import PodGroup
from pkg.podgrouper import Settings, cache_options, setup
from testkit.controllers import StubManager


def loaded(**said: object) -> Settings:
    cfg = Configuration.from_dict({"podGrouper": said})
    set_defaults(cfg)
    return Settings.of(cfg)


def test_what_nobody_says_is_upstreams_default() -> None:
    assert loaded() == Settings()


def test_every_key_of_the_configuration_is_used() -> None:
    made = loaded(
        nodePoolLabelKey="pool",
        queueLabelKey="queue",
        schedulerName="mine",
        maxConcurrentReconciles=3,
        searchLegacyPodGroups=False,
        knativeGangSchedule=False,
        defaultPrioritiesConfigMap={"name": "defaults", "namespace": "kai"},
        podLabelSelector={"a": "b"},
        namespaceLabelSelector={"c": "d"},
    )

    assert (made.scheduler_name, made.node_pool_label_key) == ("mine", "pool")
    assert made.namespace_labels == {"c": "d"}
    assert (made.queue_label_key, made.node_pool_label_key) == ("queue", "pool")
    assert made.default_priorities == ("kai", "defaults")
    assert (made.search_legacy_pod_groups, made.knative_gang_schedule) == (False, False)
    assert (made.max_concurrent_reconciles, made.pod_labels) == (3, {"a": "b"})


def test_a_config_map_without_a_namespace_is_none() -> None:
    assert loaded(defaultPrioritiesConfigMap={"name": "defaults"}).default_priorities is None


def test_only_our_pods_that_have_not_ended_are_cached() -> None:
    held = cache_options(loaded(schedulerName="mine", podLabelSelector={"a": "b"}))

    assert held[Pod].fields == "spec.schedulerName=mine,status.phase!=Failed,status.phase!=Succeeded"
    assert held[Pod].labels == {"a": "b"}


def test_pod_groups_are_cached_without_their_status() -> None:
    transform = cache_options(loaded())[PodGroup].transform

    assert transform is not None
    assert transform({"spec": {"queue": "q"}, "status": {"phase": "x"}}) == {"spec": {"queue": "q"}}


def test_of_config_maps_one_is_cached_but_the_metadata_of_all_where_that_is_wanted() -> None:
    held = cache_options(loaded(defaultPrioritiesConfigMap={"name": "defaults", "namespace": "kai"}))
    options = cache.Options(by_object=held)

    assert set(options.for_kind(ConfigMap).namespaces or ()) == {"kai"}
    assert options.for_kind(ConfigMap).within("kai").fields == {"metadata.name": "defaults"}
    assert options.for_kind(metadata_only(ConfigMap)).fields is None


async def test_the_sources_of_pods_are_these() -> None:
    class Cache:
        async def get_informer(self, _kind: object) -> SimpleNamespace:
            return SimpleNamespace(add_event_handler=lambda _handler: None)

    mgr: Any = StubManager(
        cache=Cache(),
        rest_mapper=SimpleNamespace(resource_for=None),
        published_schema=lambda *_args: None,
    )
    await setup(mgr, Settings(namespace_labels={"a": "b"}))

    (controller,) = mgr.controllers
    assert sorted(map(str, controller._sources)) == [
        "changed owners and deleted groups",
        "kind source: Namespace (metadata)",
        "kind source: Pod",
        "pods without a group",
        "rules of the served PodGroup",
    ]
