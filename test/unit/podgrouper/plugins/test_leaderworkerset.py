# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pkg.podgrouper.plugins import GroupingError
from pkg.podgrouper.podgroup import Metadata

PREFIX = "leaderworkerset.sigs.k8s.io"
GroupLws = Callable[..., Awaitable[Metadata]]


@pytest.fixture
def group_lws(make_object: Any, make_pod: Any, group: Any) -> GroupLws:
    async def group_lws(
        size: Any,
        worker: Any = None,
        *,
        segment: Any = None,
        policy: Any = None,
        startup: Any = None,
        template: Any = None,
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        pod_annotations: dict[str, str] | None = None,
        node: str = "",
    ) -> Metadata:
        cut = {"subGroupSize": segment, "subGroupPolicyType": policy}
        leader_worker_template = {
            "size": size,
            "workerTemplate": template if template is not None else {},
            "subGroupPolicy": {name: value for name, value in cut.items() if value is not None},
        }
        spec = {
            "leaderWorkerTemplate": leader_worker_template,
            **({"startupPolicy": startup} if startup is not None else {}),
        }
        lws = make_object(
            "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "l", spec=spec, annotations=annotations
        )
        labels = dict(labels or {})
        if worker is not None:
            labels[f"{PREFIX}/worker-index"] = str(worker)
        pod = make_pod("p", lws, spec={"nodeName": node}, labels=labels, annotations=pod_annotations)
        metadata: Metadata = await group(pod, lws)
        return metadata

    return group_lws


async def test_a_replica_is_a_leader_and_workers(group_lws: GroupLws, sub_groups: Any) -> None:
    assert sub_groups(await group_lws(3, 0)) == {"leader": (1, None, ["p"]), "workers": (2, None, [])}
    assert sub_groups(await group_lws(3, 2)) == {"leader": (1, None, []), "workers": (2, None, ["p"])}
    assert sub_groups(await group_lws(1)) == {"leader": (1, None, [])}


@pytest.mark.parametrize(
    ("index", "name"), [("4", "pg-l-uid-l-group-4"), ("+4", "pg-l-uid-l-group-4"), ("x", "pg-l-uid-l")]
)
async def test_each_replica_has_its_own_name(index: str, name: str, group_lws: GroupLws) -> None:
    assert (await group_lws(1, labels={f"{PREFIX}/group-index": index})).name == name


@pytest.mark.parametrize(
    ("worker", "node", "annotation", "needed"),
    [
        pytest.param(0, "", "5", 1, id="a leader without a node needs itself"),
        pytest.param(0, "n", "5", 5, id="one on a node needs its workers, as the pod says"),
        pytest.param(1, "", None, 3, id="or as the set says"),
        pytest.param(1, "", "many", 3, id="a size that is no number is none"),
        pytest.param("00", "", None, 3, id="00 is no leader"),
    ],
)
async def test_while_the_leader_gets_ready(
    worker: Any, node: str, annotation: str | None, needed: int, group_lws: GroupLws
) -> None:
    annotations = {f"{PREFIX}/size": annotation} if annotation is not None else None

    metadata = await group_lws(3, worker, startup="LeaderReady", node=node, pod_annotations=annotations)

    assert metadata.min_available == needed


async def test_segments_with_the_leader_as_one_of_them(group_lws: GroupLws, sub_groups: Any) -> None:
    assert sub_groups(await group_lws(4, 3, segment=2)) == {
        "segment-0": (2, None, []),
        "segment-1": (2, None, ["p"]),
        "leader": (1, "segment-0", []),
        "workers": (1, "segment-0", []),
    }


async def test_segments_that_the_workers_fill_have_the_leader_as_an_extra_pod(
    group_lws: GroupLws, sub_groups: Any
) -> None:
    for worker, where in ((0, "leader"), (2, "workers"), (3, "segment-1")):
        groups = sub_groups(await group_lws(5, worker, segment=2))
        assert [name for name, (_, _, pods) in groups.items() if pods] == [where]
        assert [needed for needed, _, _ in groups.values()] == [3, 2, 1, 2]


async def test_the_last_segment_may_be_smaller(group_lws: GroupLws, sub_groups: Any) -> None:
    assert sub_groups(await group_lws(6, 5, segment=4))["segment-1"] == (2, None, ["p"])


async def test_the_leader_may_be_excluded_where_the_workers_fill_the_segments(
    group_lws: GroupLws, sub_groups: Any
) -> None:
    for worker, where in ((0, "leader"), (2, "segment-0"), (3, "segment-1")):
        groups = sub_groups(await group_lws(5, worker, segment=2, policy="LeaderExcluded"))
        assert [name for name, (_, _, pods) in groups.items() if pods] == [where]
        assert list(groups) == ["leader", "segment-0", "segment-1"]
    with pytest.raises(GroupingError, match="replicasSize 4 is not divisible by segmentSize 2"):
        await group_lws(4, 0, segment=2, policy="LeaderExcluded")


SIZE = "kai.scheduler/segment-size"


@pytest.mark.parametrize(
    ("segment", "own", "template", "segments"),
    [(2, "3", "5", 3), (None, "3", "5", 2), (None, None, "5", 1), (None, None, 5, 0), (None, None, None, 0)],
)
async def test_the_segment_size_is_the_specs_then_the_sets_then_the_templates(
    segment: Any, own: str | None, template: Any, segments: int, group_lws: GroupLws
) -> None:
    metadata = await group_lws(
        6,
        1,
        segment=segment,
        annotations={SIZE: own} if own else None,
        template={"metadata": {"annotations": {SIZE: template}}} if template else None,
    )

    assert sum(each.name.startswith("segment-") for each in metadata.sub_groups) == segments


async def test_segments_are_placed_as_the_worker_template_says(group_lws: GroupLws) -> None:
    template = {"metadata": {"annotations": {"kai.scheduler/segment-topology-required-placement": "rack"}}}

    metadata = await group_lws(
        4, 1, segment=2, template=template, annotations={"kai.scheduler/topology": "t"}
    )

    constraint = metadata.sub_groups[0].topology_constraints
    assert constraint is not None
    assert (constraint.topology, constraint.required_topology_level) == ("t", "rack")
    assert metadata.sub_groups[-1].topology_constraints is None


@pytest.mark.parametrize(
    ("size", "worker", "more", "message"),
    [
        (None, 0, {}, "failed to get leaderWorkerTemplate.size from LWS team-a/l with error: "),
        (0, 0, {}, "invalid leaderWorkerTemplate.size 0 in LWS team-a/l"),
        (2, 0, {"startup": "Whenever"}, "unknown startupPolicy: Whenever"),
        (
            2,
            0,
            {"startup": 2},
            r"failed to get startupPolicy from LWS team-a/l: \.spec\.startupPolicy accessor",
        ),
        (4, 0, {"segment": 1}, "team-a/l: segmentSize 1 is not valid. It must be greater than 1"),
        (4, 0, {"segment": 5}, "team-a/l: segmentSize 5 is greater than replicasSize 4"),
        (
            4,
            0,
            {"segment": 2, "policy": 2},
            "failed to get sub group policy for LWS team-a/l: .*Type accessor",
        ),
        (
            4,
            0,
            {"annotations": {SIZE: "x"}},
            'invalid segment size annotation x in LWS team-a/l: strconv.Atoi: parsing "x"',
        ),
        (4, "w", {"segment": 2}, "failed to get worker index from pod team-a/p: strconv.Atoi"),
        (4, None, {"segment": 2}, "failed to get worker index from pod team-a/p: strconv.Atoi"),
        (4, 99, {"segment": 2}, "pod team-a/p belongs to segment 49, but there are 4 subgroups"),
        (4, -9, {"segment": 2}, "pod team-a/p belongs to segment -4, but there are 4 subgroups"),
        (
            4,
            0,
            {"segment": 2, "template": []},
            "failed to get segment topology constraints for LWS team-a/l: ",
        ),
        (2**31 - 1, 0, {"segment": 2}, "1073741823 segments are too many for a pod group"),
    ],
)
async def test_what_is_refused(
    size: Any, worker: Any, more: dict[str, Any], message: str, group_lws: GroupLws
) -> None:
    with pytest.raises(GroupingError, match=message):
        await group_lws(size, worker, **more)
