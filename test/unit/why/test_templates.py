# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``why`` names the field for which the API server refuses the Jobs of a JobSet that has none."""

from typing import Any

import pytest
from controller_runtime.fake import FakeClient
from controller_runtime.machinery import Object, Unstructured
from controller_runtime.machinery.errors import ForbiddenError, InvalidError, StatusError

from pkg.why import Snapshot, diagnose, reading
from pkg.why.finding import Finding
from testkit.why.states import nothing_made
from testkit.why.world import NOW, TrainJobObjects

TEXT = 'Job.batch "llama-node-0" is invalid: spec.template.spec.containers[0].image: Required value'
DENIED = 'jobs.batch is forbidden: User "ann" cannot create resource "jobs" in API group "batch"'


class DryRuns(FakeClient):
    """A client whose dry runs of Jobs raise ``error``, if there is one."""

    error: StatusError | None = None

    def __init__(self, *objects: Object) -> None:
        super().__init__(*objects)
        self.asked: list[dict[str, Any]] = []

    async def create(self, obj: Any, **options: Any) -> Any:
        assert options == {"dry_run": True}
        self.asked.append(obj.to_dict())
        if self.error is not None:
            raise self.error
        return obj


def refused_world(*, image: str = "") -> TrainJobObjects:
    """Return a TrainJob whose JobSet has neither Jobs nor events, and whose containers have the image ``image``."""
    world = TrainJobObjects()
    nothing_made(world)
    (job_set,) = [each for each in world.objects if each["kind"] == "JobSet"]
    pod = {"containers": [{"name": "node", **({"image": image} if image else {})}]}
    job_set["spec"]["replicatedJobs"] = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
    return world


async def taken(world: TrainJobObjects, error: StatusError | None) -> tuple[Snapshot, DryRuns]:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}}
    client = DryRuns(*(Unstructured.wrap(each) for each in (*world.objects, namespace)))
    client.error = error
    return await reading.take(client, "team-a", "llama", NOW), client


def gravest(snapshot: Snapshot) -> tuple[Finding, list[str]]:
    findings = [each for each in diagnose(snapshot).findings if each.cause != "runtime-missing"]
    return findings[0], [each.cause for each in findings]


async def test_the_text_of_the_api_server_is_the_cause() -> None:
    snapshot, client = await taken(refused_world(), InvalidError(TEXT, code=422, reason="Invalid"))
    found, causes = gravest(snapshot)
    assert (found.cause, "spec.template.spec.containers[0].image: Required value" in found.summary) == (
        "object-invalid",
        True,
    )
    assert any(TEXT in line for line in found.evidence)
    assert "jobset-controller" not in causes
    (asked,) = client.asked
    assert (asked["kind"], asked["metadata"]["name"]) == ("Job", "llama-node-0")


@pytest.mark.parametrize("image", ["", "i"], ids=["bad", "good"])
async def test_a_user_who_may_not_create_jobs_sees_common_mistakes(image: str) -> None:
    snapshot, _ = await taken(
        refused_world(image=image), ForbiddenError(DENIED, code=403, reason="Forbidden")
    )
    _, causes = gravest(snapshot)
    assert snapshot.refused is None
    assert snapshot.unread["dry run of Jobs"] == DENIED
    assert ("object-invalid" in causes, "jobset-controller" in causes) == (not image, bool(image))


async def test_a_controller_does_not_react_if_a_dry_run_admits_its_jobs() -> None:
    snapshot, client = await taken(refused_world(image="i"), None)
    assert (snapshot.refused, len(client.asked)) == ({}, 1)
    assert "jobset-controller" in gravest(snapshot)[1]


async def test_a_job_set_with_jobs_is_not_asked_about() -> None:
    snapshot, client = await taken(TrainJobObjects(), None)
    assert (snapshot.refused, client.asked) == (None, [])


QUOTA = 'pods "llama-node-0-0-00000" is forbidden: exceeded quota: team, requested: pods=1, used: pods=0, limited: pods=0'
HOOK = 'Internal error occurred: failed calling webhook "policy.example.com": connection refused'


def without_pods(*, event_age: float | None = None) -> TrainJobObjects:
    """Return a TrainJob whose Job has no pods, and an event of this age that says so."""
    world = TrainJobObjects()
    world.without_pods()
    world.job["spec"]["template"] = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "node"}]},
    }
    world.job["metadata"]["labels"] = {"jobset.sigs.k8s.io/jobset-name": "llama"}
    if event_age is not None:
        world.event(world.job, "FailedCreate", f"Error creating: {QUOTA}", age=event_age)
    return world


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ForbiddenError(QUOTA, code=403, reason="Forbidden"), "quota-exceeded"),
        (StatusError(HOOK, code=500, reason="InternalError"), "webhook-unreachable"),
    ],
)
async def test_after_the_events_are_gone_a_dry_run_says_why_a_job_has_no_pods(
    error: StatusError, cause: str
) -> None:
    world = without_pods()
    version = "admissionregistration.k8s.io/v1"
    hook = world.make(version, "ValidatingWebhookConfiguration", "policy")
    del hook["metadata"]["namespace"]
    hook["webhooks"] = [
        {"name": "policy.example.com", "clientConfig": {"url": "https://policy"}, "failurePolicy": "Ignore"},
        {"name": "other.example.com", "clientConfig": {"url": "https://other"}},
    ]

    snapshot, client = await taken(world, error)
    found, _ = gravest(snapshot)

    assert (found.cause, found.subjects) == (cause, ("Job llama-node-0",))
    assert str(error) in found.evidence[1]
    hooks = [each for each in found.evidence if "failurePolicy" in each]
    assert [each.partition("webhook ")[2] for each in hooks] == (
        ["policy.example.com: https://policy, failurePolicy Ignore"] if cause == "webhook-unreachable" else []
    )
    (asked,) = client.asked
    assert (asked["kind"], asked["metadata"]["labels"]) == ("Pod", {"a": "b"})
    assert asked["metadata"]["annotations"] == {"batch.kubernetes.io/job-completion-index": "0"}


@pytest.mark.parametrize(
    "text",
    ['pods is forbidden: User "ann" cannot create resource "pods" in API group ""',
     'admission webhook "policy.example.com" does not support dry run'],
)  # fmt: skip
async def test_a_pod_that_cannot_be_tried_is_no_cause(text: str) -> None:
    snapshot, _ = await taken(without_pods(), StatusError(text, code=403, reason="Forbidden"))

    assert snapshot.unread["dry run of pods"] == text
    assert snapshot.refused is None


@pytest.mark.parametrize(("age", "tries"), [(60, 0), (3600, 1)])
async def test_pods_are_tried_only_if_no_recent_event_gives_the_reason(age: float, tries: int) -> None:
    world = without_pods(event_age=age)
    for each in world.objects:
        each["metadata"]["creationTimestamp"] = "2026-03-02T10:00:00Z"
    snapshot, client = await taken(world, ForbiddenError(QUOTA, code=403, reason="Forbidden"))

    assert len(client.asked) == tries
    assert gravest(snapshot)[0].cause == "quota-exceeded"


async def test_commands_that_explain_nothing_send_no_dry_run_and_read_no_controllers() -> None:
    client = DryRuns(*(Unstructured.wrap(each) for each in refused_world().objects))
    found = await reading.take(client, "team-a", "llama", NOW, explains=False)

    assert client.asked == []
    assert found.job_set is not None
    assert not {"Deployment", "Lease"} & {call.kind.kind for call in client.calls}
