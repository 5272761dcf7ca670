# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The output of the commands for live TrainJobs, in a pipe and on a terminal."""

import dataclasses
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from controller_runtime.client import LiveClient, ObjectList
from controller_runtime.machinery.errors import NotFoundError
from controller_runtime.rest import (
    ConfigError,
    FakeResponse,
    Request,
    Response,
    TransportTimeoutError,
)
from pkg.constants.trainer import LABEL_TRAIN_JOB_ANCESTOR
from pkg.why import LiveObject, Snapshot, container_of, diagnose, keep
from pkg.why.phase import training_step
from testkit.why.states import failed
from testkit.why.world import TrainJobObjects, condition, when

from trainerctl.cli import cluster, describe, events, live, logs, parser, why
from trainerctl.cli.live import KIND
from trainerctl.cli.terminal import Console


def test_why_prints_the_sentence_the_evidence_and_the_remedy() -> None:
    world = TrainJobObjects()
    world.waits("CreateContainerConfigError", 'secret "hf-token" not found')
    out = io.StringIO()

    why.print_text(world.verdict(), Console(file=out))

    assert out.getvalue().splitlines() == [
        "TrainJob team-a/llama runs in part (1 of 2 pods): the Secret hf-token does not exist.",
        "",
        "Evidence:  [secret-missing] Pod llama-node-0-0-abcde",
        '  container node of Pod llama-node-0-0-abcde, waits: CreateContainerConfigError (secret "hf-token" not found)',
        "",
        "To do:",
        "  Create the Secret hf-token in namespace team-a.",
    ]


def test_why_lists_other_findings_and_unread_kinds() -> None:
    world = TrainJobObjects()
    world.unscheduled("0/2 nodes are available: 2 node(s) were unschedulable.")
    world.remove(world.service)
    world.unread["Node"] = "nodes is forbidden"
    out = io.StringIO()

    why.print_text(world.verdict(), Console(file=out))

    assert "\nAlso found:\n" in out.getvalue()
    assert out.getvalue().endswith("\nNot read:\n  Node: nodes is forbidden\n")


def test_what_is_known_of_a_running_train_job_follows_the_sentence_with_colour_on_a_terminal_alone() -> None:
    piped, terminal = io.StringIO(), io.StringIO()

    why.print_text(TrainJobObjects().verdict(), Console(file=piped))
    why.print_text(
        TrainJobObjects().verdict(), Console(file=terminal, force_terminal=True, color_system="standard")
    )

    assert piped.getvalue().splitlines() == [
        "TrainJob team-a/llama runs: 2 of 2 pods.",
        "  container node of Pod llama-node-0-0-abcde has run for 4m",
        "  container node of Pod llama-node-0-1-abcde has run for 4m",
    ]
    assert "\x1b[" in terminal.getvalue()


def test_describe_shows_verdict_runtime_objects_and_events() -> None:
    world = TrainJobObjects()
    world.event(world.job, "SuccessfulCreate", "Created pod", kind="Normal", count=2)
    out = io.StringIO()

    describe.print_page(world.snapshot(), Console(file=out))

    text = out.getvalue()
    assert "Runtime  ClusterTrainingRuntime torch-distributed" in text
    assert "      Pod/llama-node-0-1-abcde" in text
    assert "Normal  SuccessfulCreate  Job/llama-node-0  Created pod" in text


FORGED = "out of disk\nTo do:\r\n  Run\v\f\x85\u2028curl\u2029 evil\u200b\ufeff\u202e\U000e0041\x1b[2J\x1b]0;title\x07\ttail"


@pytest.mark.parametrize("as_terminal", [False, True])
def test_no_text_of_the_cluster_makes_a_line_of_its_own(as_terminal: bool) -> None:
    world = TrainJobObjects()
    world.ended(1, "Error", message=FORGED)
    world.event(world.job, f"Odd{FORGED}", FORGED)
    for each in (world.pods[0], world.job):
        world.event(each, "BackOff", FORGED)
    world.unread["Node"] = FORGED
    out = io.StringIO()

    console = Console(file=out, force_terminal=as_terminal, color_system=None, width=10_000)
    describe.print_page(world.snapshot(), console)
    why.print_text(world.verdict(), console)

    lines = out.getvalue().split("\n")
    assert not [
        char for char in out.getvalue() if char != "\n" and (not char.isprintable() or char in "\ufe0f\u3164")
    ]
    assert [line.strip() for line in lines].count("To do:") == 2  # one in each of the two pages
    assert not [line for line in lines if line.strip().startswith(("Run ", "curl", "evil"))]
    assert [line for line in lines if line.startswith("  message of node: ") and "evil" in line]


@pytest.mark.parametrize("reason", ["StartError", "Error"])
def test_a_message_of_any_length_has_a_bound(reason: str) -> None:
    world = TrainJobObjects()
    world.ended(1, reason, message=f"{'x' * 100_000}\n{'y' * 100_000}")
    out = io.StringIO()

    why.print_text(world.verdict(), Console(file=out))

    assert max(map(len, out.getvalue().splitlines())) < 2500
    assert "y… (" in out.getvalue()


@pytest.mark.parametrize(("flags", "hinted"), [([], True), (["--context", "other"], False)])
async def test_without_a_kubeconfig_the_local_cluster_that_runs_is_named(
    flags: list[str], hinted: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def running() -> str:
        return "the local cluster default runs: export KUBECONFIG=/k"

    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(cluster, "running", running)
    arguments = parser.parser().parse_args(["get", *flags])
    with pytest.raises(ConfigError) as raised:
        async with live.connect(arguments):
            pass
    assert str(raised.value).startswith("no cluster configuration found")
    assert str(raised.value).endswith("; the local cluster default runs: export KUBECONFIG=/k") is hinted


def test_a_state_to_wait_for_may_be_written_as_the_condition_is() -> None:
    assert parser.parser().parse_args(["wait", "llama", "--for", "Complete"]).state == "complete"


class Frozen:
    """A server that answers each request after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def send(self, request: Request) -> Response:
        with anyio.move_on_after(request.timeout):
            await anyio.sleep(self.seconds)
            return FakeResponse(200)
        raise TransportTimeoutError(f"no response within {request.timeout} s", host="https://api")


@pytest.mark.parametrize(
    ("method", "seconds"), [("GET", 4), ("POST", 40)], ids=["a read", "a write may have taken effect"]
)
async def test_a_server_that_does_not_answer_is_reported_within_five_seconds(
    method: str, seconds: float
) -> None:
    began = anyio.current_time()
    with pytest.raises(TransportTimeoutError, match="no response within"):
        await live.FirstAnswer(Frozen(600)).send(Request(method, "/version"))
    assert anyio.current_time() - began == seconds


async def test_a_server_that_has_answered_may_take_longer() -> None:
    server = Frozen(0)
    client = live.FirstAnswer(server)
    await client.send(Request("GET", "/version"))
    server.seconds = 25
    assert (await client.send(Request("GET", "/api"))).status == 200


ENDED = "Container node of Pod llama-node-0-0-abcde (step node) ended with exit code 1 (Error): ValueError: bad rate"


def removed(message: str = "") -> TrainJobObjects:
    """Return a TrainJob whose Job has failed and removed its pods."""
    world = TrainJobObjects()
    world.without_pods()
    failed(world, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    if message:
        world.event(world.train_job, "ContainerFailed", message)
    return world


def without_pods() -> TrainJobObjects:
    world = TrainJobObjects()
    world.without_pods()
    return world


def unreadable() -> TrainJobObjects:
    world = removed()
    world.unread["Pod"] = "pods is forbidden"
    return world


@pytest.mark.parametrize(
    ("world", "step", "lines"),
    [
        pytest.param(
            removed(ENDED),
            "node",
            [
                "the pods of step node are removed, and their logs with them",
                (
                    "container node of Pod llama-node-0-0-abcde, ended with exit code 1 (Error), the pod is removed: "
                    "ValueError: bad rate"
                ),
                keep("team-a", "llama-node-"),
            ],
            id="how they ended is known",
        ),
        pytest.param(
            removed(),
            "node",
            ["the pods of step node are removed, and their logs with them", keep("team-a", "llama-node-")],
            id="how they ended is not known",
        ),
        pytest.param(
            removed(ENDED),
            "nodes",
            ["no pod of step nodes matches; see trainerctl get llama -n team-a"],
            id="another step",
        ),
        pytest.param(
            without_pods(),
            "node",
            ["step node has no pod; see trainerctl why llama -n team-a"],
            id="no pod yet",
        ),
        pytest.param(
            unreadable(), "node", ["the pods of step node cannot be read: pods is forbidden"], id="no right"
        ),
    ],
)
def test_logs_say_why_no_pod_can_be_read(world: TrainJobObjects, step: str, lines: list[str]) -> None:
    assert logs.no_pod(world.snapshot(), step).splitlines() == lines


@pytest.mark.parametrize(
    ("step", "containers", "read"),
    [
        ("launcher", ["proxy", "node"], "node"),
        ("launcher", ["proxy", "launcher"], "launcher"),
        ("mine", ["proxy", "mine", "node"], "mine"),
        ("mine", ["worker", "proxy"], "worker"),
    ],
)
def test_the_log_is_that_of_the_container_that_does_the_work(
    step: str, containers: list[str], read: str
) -> None:
    world = TrainJobObjects()
    pod = world.pods[0]
    pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = step
    pod["spec"]["containers"] = [{"name": each} for each in containers]

    assert container_of(LiveObject(pod)) == read


@pytest.mark.parametrize(
    ("steps", "trains"),
    [
        pytest.param(
            {"model-initializer": "model-initializer", "work": "trainer"}, "work", id="by its label"
        ),
        pytest.param({"node": "", "launcher": "trainer"}, "launcher", id="the launcher of MPI"),
        pytest.param({"node": "trainer", "launcher": ""}, "launcher", id="never the SSH servers"),
        pytest.param({"dataset-initializer": "", "alone": ""}, "alone", id="the only other step"),
        pytest.param({}, "node", id="no step is known"),
    ],
)
def test_the_step_that_trains_is_found_whatever_its_name(steps: dict[str, str], trains: str) -> None:
    world = TrainJobObjects()
    world.without_pods()
    world.remove(world.job)
    world.job_set["spec"]["replicatedJobs"] = [
        {"name": step, "template": {"metadata": {"labels": {LABEL_TRAIN_JOB_ANCESTOR: label}}}}
        for step, label in steps.items()
    ]

    assert training_step(world.snapshot()) == trains


def kept(rank: int, code: int, finished: float, *, deleted: bool = False) -> LiveObject:
    """Return a removed pod, as a local cluster keeps it."""
    metadata = {
        "name": f"llama-node-0-{rank}-gone0",
        "namespace": "team-a",
        "uid": f"gone-{rank}",
        "creationTimestamp": when(100),
        "labels": {"jobset.sigs.k8s.io/replicatedjob-name": "node"},
        "annotations": {"batch.kubernetes.io/job-completion-index": str(rank)},
        **({"deletionTimestamp": when(finished), "deletionGracePeriodSeconds": 0} if deleted else {}),
    }
    end = {"exitCode": code, "reason": "Error", "finishedAt": when(finished)}
    status = {"name": "node", "restartCount": 0, "state": {"terminated": end}}
    spec = {"containers": [{"name": "node"}]}
    return LiveObject(
        {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"containerStatuses": [status]}}
    )


def with_kept(*pods: LiveObject) -> Snapshot:
    lines = {(each.name, "node"): ["ValueError: bad shard"] for each in pods}
    return dataclasses.replace(removed().snapshot(), removed_pods=pods, logs=lines)


def initialized(**states: dict[str, Any]) -> LiveObject:
    """Return a pod with a sidecar and two init containers; the working container has not run without a state."""
    init = [{"name": "proxy", "restartPolicy": "Always"}, {"name": "fetch"}, {"name": "unpack"}]
    spec = {"containers": [{"name": "node"}], "initContainers": init}
    names = ("proxy", "fetch", "unpack")
    found = [{"name": name, "state": states[name]} for name in names if name in states]
    node = states.get("node", {"waiting": {"reason": "PodInitializing"}})
    status = {"initContainerStatuses": found, "containerStatuses": [{"name": "node", "state": node}]}
    return LiveObject({"kind": "Pod", "metadata": {"name": "llama-node-0-0"}, "spec": spec, "status": status})


@pytest.mark.parametrize(
    ("pod", "container"),
    [
        pytest.param(
            initialized(proxy={"running": {}}, fetch={"terminated": {"exitCode": 5}}), "fetch", id="failed"
        ),
        pytest.param(initialized(proxy={"running": {}}, fetch={"running": {}}), "fetch", id="runs"),
        pytest.param(initialized(proxy={"running": {}}), "node", id="only a sidecar runs"),
        pytest.param(initialized(proxy={"terminated": {"exitCode": 1}}), "proxy", id="a failed sidecar"),
        pytest.param(
            initialized(fetch={"terminated": {"exitCode": 5}}, node={"running": {}}),
            "node",
            id="the work has begun",
        ),
    ],
)
def test_until_the_work_begins_the_log_is_that_of_the_init_container(pod: LiveObject, container: str) -> None:
    found, said = logs.container_to_read(pod)

    assert found == container
    assert (container in said and "node has not started" in said) == (container != "node")


def test_the_previous_log_of_a_rank_is_that_of_its_earlier_pod() -> None:
    """A restart of the JobSet or a retry of the Job replaces pods, whose containers never restart."""
    old, new = kept(1, 9, 60), kept(1, 9, 20)
    metadata = {**old.at("metadata"), "uid": "first", "name": "first", "creationTimestamp": when(300)}
    first = LiveObject({**old.data, "metadata": metadata})
    snapshot = with_kept(first, new, kept(0, 9, 10))

    assert logs.earlier_pod(snapshot, new) == first
    assert logs.earlier_pod(snapshot, first) is None


def test_events_that_have_expired_lead_to_the_command_that_reads_the_objects() -> None:
    world = removed()
    world.remove(*(each for each in world.objects if each["kind"] == "Event"))

    assert events.no_events(world.snapshot()).endswith("trainerctl why llama -n team-a")
    assert events.no_events(removed(ENDED).snapshot(), ("Normal",)) == (
        "no events of type Normal of TrainJob llama; without --types, there are others"
    )


def test_what_no_event_says_about_the_end_of_a_train_job_is_a_note() -> None:
    world = TrainJobObjects()
    assert list(events.notes(world.snapshot())) == []
    failed = condition("Failed", reason="DeadlineExceeded", message="too long", age=120)
    world.train_job["status"] = {"conditions": [failed]}
    world.train_job["spec"]["ttlSecondsAfterFinished"] = 600

    assert list(events.notes(world.snapshot())) == [
        "TrainJob llama is Failed since 2m, and no event says so: DeadlineExceeded: too long",
        f"TrainJob llama expires {when(-480)} if TTLAfterFinished is enabled, because spec.ttlSecondsAfterFinished is 600",
    ]
    world.train_job["spec"]["ttlSecondsAfterFinished"] = 0
    assert list(events.notes(world.snapshot()))[1].startswith(
        f"TrainJob llama was not deleted at {when(120)}, because"
    )
    world.event(world.train_job, "DeadlineExceeded", "too long")
    world.event(world.train_job, "TrainJobExpiring", "soon")
    assert list(events.notes(world.snapshot())) == []


def test_the_rank_that_failed_first_is_shown_and_named() -> None:
    snapshot = with_kept(kept(0, 143, 20), kept(1, 1, 20), kept(2, 1, 19), kept(3, 137, 40, deleted=True))

    rank, said = logs.first_failed(snapshot, "node")

    assert rank == 1
    assert said == "Rank 1 of step node failed first (exit code 1). For others, add --rank N or --all."
    assert [pod.name for pod in logs.pods_of(snapshot, "node")] == [
        f"llama-node-0-{rank}-gone0" for rank in range(4)
    ]
    assert logs.first_failed(TrainJobObjects().snapshot(), "node") == (0, "")


def with_initializer(**state: Any) -> Snapshot:
    """Return a TrainJob whose dataset initializer is the only step with a Job, and has a pod with this state."""
    world = TrainJobObjects()
    jobs = world.job_set["spec"]["replicatedJobs"]
    jobs.insert(0, {**jobs[0], "name": "dataset-initializer"})
    for each in (world.job, *world.pods):
        each["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "dataset-initializer"
    for number in range(len(world.pods)):
        world.container(pod=number, phase="Failed" if "terminated" in state else "Running", **state)
    world.train_job["status"]["jobsStatus"] = [{"name": "dataset-initializer"}, {"name": "node"}]
    return world.snapshot()


@pytest.mark.parametrize(
    ("state", "what"),
    [
        ({"terminated": {"exitCode": 3, "finishedAt": when(5)}}, "failed with exit code 3"),
        ({"running": {"startedAt": when(5)}}, "runs"),
    ],
)
def test_before_the_training_the_log_is_that_of_the_step_that_failed_or_runs(state: Any, what: str) -> None:
    snapshot = with_initializer(**state)

    assert logs.step_to_read(snapshot) == (
        "dataset-initializer",
        f"Step node has not started. This is the log of step dataset-initializer, which {what}.",
    )
    assert logs.no_pod(snapshot, "node") == "step node has not started; see trainerctl why llama -n team-a"
    assert logs.step_to_read(without_pods().snapshot()) == ("node", "")


def test_why_shows_the_kept_log_of_a_removed_pod_and_the_command_that_prints_it() -> None:
    first = diagnose(with_kept(kept(1, 3, 20))).findings[0]

    assert first.summary == "the container node failed with exit code 3"
    assert first.evidence[-1] == "log of node: ValueError: bad shard"
    assert first.advice == "Read its log: trainerctl logs llama -n team-a --step node --rank 1"


def test_kept_pods_of_an_earlier_run_of_the_job_set_explain_nothing() -> None:
    old = kept(1, 3, 20)
    metadata = {**old.at("metadata"), "creationTimestamp": when(100_000)}

    assert logs.pods_of(with_kept(LiveObject({**old.data, "metadata": metadata})), "node") == []


def test_the_message_of_an_event_makes_no_line_of_its_own() -> None:
    assert len(logs.no_pod(removed(f"{ENDED}\nsee evil").snapshot(), "node").splitlines()) == 3


async def test_all_logs_that_are_followed_share_one_read_of_the_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    class Client:
        async def get(self, kind: Any, _key: Any) -> Any:
            reads.append(kind.gvk.kind)
            return KIND.from_dict(TrainJobObjects().train_job)

        async def list(self, kind: Any, **_options: Any) -> ObjectList[Any]:
            reads.append(kind.gvk.kind)
            return ObjectList([])

    latest = logs._Latest(live.Connection(Client(), "team-a", None), "llama")  # type: ignore[arg-type]
    async with anyio.create_task_group() as ranks:
        for _ in range(3):
            ranks.start_soon(latest.read)
    assert reads == ["TrainJob", "Pod"]

    monkeypatch.setattr(latest, "_due", 0)
    await latest.read()
    assert reads == ["TrainJob", "Pod"] * 2


def test_events_are_also_those_of_removed_pods() -> None:
    world = removed(ENDED)
    gone = {"kind": "Pod", "metadata": {"name": "llama-node-0-0-abcde", "uid": "gone"}}
    world.event(gone, "BackOff", "Back-off restarting failed container", age=60)
    out = io.StringIO()

    snapshot = world.snapshot()
    events.print_table(snapshot, events.of_all(snapshot), Console(file=out, width=200))

    assert [line.split()[2:4] for line in out.getvalue().splitlines()[1:]] == [
        ["BackOff", "Pod/llama-node-0-0-abcde"],
        ["ContainerFailed", "TrainJob/llama"],
    ]


def test_a_train_job_that_does_not_exist_may_have_been_deleted_after_its_time_to_live() -> None:
    missing = NotFoundError('trainjobs "llama" not found', code=404, details={"kind": "trainjobs"})
    connection = live.Connection(LiveClient(Frozen(0)), "team-a", live.ServerClock(Frozen(0)))

    said = str(connection.worded(missing))

    assert "ttlSecondsAfterFinished" in said
    assert said.endswith(": kubectl get events -n team-a")


@pytest.mark.parametrize(
    ("date", "seconds"),
    [
        ("Mon, 02 Mar 2026 13:00:00 GMT", 3600),
        ("Mon, 02 Mar 2026 11:00:00 GMT", -3600),
        ("Mon, 02 Mar 2026 12:00:04 GMT", 0),
        ("yesterday", 0),
    ],
)
async def test_times_are_those_of_the_clock_of_the_server(date: str, seconds: float) -> None:
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)

    class Dated:
        async def send(self, request: Request) -> Response:
            return FakeResponse(200, headers={"Date": date})

    clock = live.ServerClock(Dated(), lambda: noon)
    await clock.send(Request("GET", "/version"))

    assert clock.corrected(noon) - noon == timedelta(seconds=seconds)
