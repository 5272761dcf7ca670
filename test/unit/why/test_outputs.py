# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Errors that a training prints before it ends: the line follows the exit code, and the advice fits the error."""

import time

import pytest

from testkit.why.cases import fails_with
from testkit.why.states import failed
from testkit.why.world import TrainJobObjects, condition, when


@pytest.mark.parametrize("loops", [False, True], ids=["message", "crash loop"])
def test_the_line_that_tells_the_cause_is_in_the_sentence_wherever_it_is_said(loops: bool) -> None:
    world = TrainJobObjects()
    line = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    if loops:
        world.waits("CrashLoopBackOff", "back-off 40s", last={"exitCode": 1, "reason": "Error"}, restarts=4)
        log = ["step 10", line, "  in a traceback", "cleanup done"]
        world.logs[world.pods[0]["metadata"]["name"], "node"] = log
    else:
        world.ended(1, message=line)

    found = world.verdict().findings[0]

    assert found.cause == ("crash-loop" if loops else "container-failed")
    assert found.summary.endswith(f": {line}")
    assert found.advice.startswith("The memory of the GPU ran out")
    assert "Read its log: trainerctl logs llama -n team-a --step node --rank 0" in found.advice


@pytest.mark.parametrize(
    ("code", "log", "said"),
    [
        pytest.param(1, ["ModuleNotFoundError: No module named 'apex'", "Traceback (most recent call last):", "ValueError: bad rate"],
                     ": ValueError: bad rate", id="no error before the last traceback"),
        pytest.param(1, ['  File "/workspace/train.py", line 2', "    def train(:", "              ^", "SyntaxError: invalid syntax"],
                     ": SyntaxError: invalid syntax", id="a syntax error, which has no traceback"),
        pytest.param(1, ["No space left on device", *["step"] * 20], "", id="no error long before the end"),
        pytest.param(1, ["Name or service not known", *["step"] * 20], "", id="no host name long before the end"),
        pytest.param(1, ["root@a: Permission denied (publickey).", "ORTE was unable to reliably start one or more daemons."],
                     ": root@a: Permission denied (publickey).", id="not the last words of mpirun"),
        pytest.param(134, ["terminate called after throwing an instance of 'c10::Error'", "  what():  Expected a tensor on cuda:0"],
                     ", SIGABRT: what(): Expected a tensor on cuda:0", id="what an exception of C++ says"),
    ],
)  # fmt: skip
def test_the_line_of_a_log_that_ended_the_training_is_said(code: int, log: list[str], said: str) -> None:
    world = TrainJobObjects()
    fails_with(code, *log)(world)

    assert world.verdict().findings[0].summary == f"the container node failed with exit code {code}{said}"


TORCHRUN = """\
step 10
Traceback (most recent call last):
  File "/workspace/train.py", line 88, in <module>
    loss.backward()
{error}
E0612 10:01:02.003000 7 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 9)
Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
/workspace/train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  exitcode  : 1 (pid: 9)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================"""


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("[rank0]: ValueError: bad learning rate", "Read its log: "),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "The memory of the GPU ran out"),
        ("MemoryError", "The memory ran out"),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.parquet'", "A file is missing"),
        ("AssertionError", "Read its log: "),
        ("Exception: stopped", "Read its log: "),
    ],
)  # fmt: skip
def test_the_error_of_the_worker_is_said_and_not_the_report_of_torchrun(error: str, advice: str) -> None:
    world = TrainJobObjects()
    fails_with(1, *TORCHRUN.format(error=error).splitlines())(world)

    found = world.verdict().findings[0]

    assert found.summary == f"the container node failed with exit code 1: {error}"
    assert found.advice.startswith(advice)
    assert found.evidence[-1] == f"log of node: {error}"


def test_the_empty_log_of_a_crash_loop_is_not_advised() -> None:
    world = TrainJobObjects()
    world.waits("CrashLoopBackOff", "back-off 40s", last={"exitCode": 1, "reason": "Error"}, restarts=4)
    world.logs[world.pods[0]["metadata"]["name"], "node"] = []

    advice = world.verdict().findings[0].advice

    assert advice.startswith("It wrote nothing.")
    assert "trainerctl logs" not in advice
    assert advice.endswith("for a crash of Python.")


def test_the_end_of_a_long_line_tells_the_cause_of_the_error() -> None:
    world = TrainJobObjects()
    line = (
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub.example', port=443): Max retries exceeded with "
        "url: /api/models/x (Caused by NewConnectionError('<urllib3 object>: [Errno 101] Network is unreachable'))"
    )
    fails_with(1, line)(world)

    summary = world.verdict().findings[0].summary

    assert "requests.exceptions.ConnectionError: HTTPS" in summary
    assert summary.endswith("Network is unreachable'))")


@pytest.mark.parametrize(
    ("killed", "restarts", "expected"),
    [
        (35, 3, ("probe-failing", "error")),
        (35, 1, ("probe-failing", "note")),
        (
            3000,
            3,
            ("crash-loop", "error"),
        ),  # the probe failed long before the container ended for another reason
    ],
)
def test_a_container_that_the_kubelet_killed_because_of_a_probe_did_not_run_out_of_memory(
    killed: float, restarts: int, expected: tuple[str, str]
) -> None:
    world = TrainJobObjects()
    last = {"exitCode": 137, "reason": "Error", "finishedAt": when(30)}
    world.container(phase="Running", restarts=restarts, last=last, running={"startedAt": when(25)})
    killing = "Container node failed liveness probe, will be restarted"
    world.event(world.pods[0], "Killing", killing, kind="Normal", age=killed)
    world.event(
        world.pods[0], "Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 503", age=40
    )

    found = world.verdict().findings[0]

    assert (found.cause, found.severity) == expected
    assert ("statuscode: 503" in "\n".join(found.evidence)) is (found.cause == "probe-failing")
    assert "memory" not in found.advice


def test_long_lines_are_cut_and_read_in_bounded_time() -> None:
    world = TrainJobObjects()
    world.ended(1)
    line = f"CUDA out of memory {'9' * (1 << 16)}"
    world.logs[world.pods[0]["metadata"]["name"], "node"] = [line, *["9" * (1 << 16)] * 19]

    began = time.process_time()
    found = world.verdict().findings[0]

    assert time.process_time() - began < 8
    assert found.summary.endswith(f": {line[:80]}…{'9' * 80}")


def test_of_ranks_that_failed_in_the_same_second_the_lowest_is_named_first() -> None:
    world = TrainJobObjects()
    for number in (1, 0):
        world.ended(1, pod=number)

    found = world.verdict().findings[0]

    assert found.subjects == tuple(f"Pod {pod['metadata']['name']}" for pod in world.pods)
    assert found.advice.endswith(" --rank 0")


@pytest.mark.parametrize(
    "line",
    ["RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.1.2.3]:41234",
     "[rank0]:[E ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout"],
)  # fmt: skip
def test_a_rank_that_only_lost_another_one_is_not_the_first_answer(line: str) -> None:
    world = TrainJobObjects()
    for number, (said, age) in enumerate(
        [(line, 21), ("ValueError: bad sample", 20)]
    ):  # clocks of nodes differ
        world.ended(1, pod=number, age=age)
        world.logs[world.pods[number]["metadata"]["name"], "node"] = [
            "Traceback (most recent call last):",
            said,
        ]

    first, second = world.verdict().findings

    assert first.summary.endswith("exit code 1: ValueError: bad sample")
    assert line in second.summary


def test_without_the_output_of_the_rank_that_failed_the_first_that_waited_for_it_is_the_answer() -> None:
    world = TrainJobObjects()
    for number in (0, 1):
        world.ended(1, pod=number)
    line = "[rank0]:[E ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout"
    world.logs[world.pods[0]["metadata"]["name"], "node"] = [line]

    first = world.verdict().findings[0]

    assert line in first.summary
    assert "Compare all logs" in first.advice


def test_a_container_that_the_deadline_of_its_pod_ended_did_not_fail() -> None:
    world = TrainJobObjects()
    world.ended(143)
    world.pods[0]["status"].update(reason="DeadlineExceeded", message="Pod was active too long")

    assert [each.cause for each in world.verdict().findings] == ["deadline-exceeded"]


@pytest.mark.parametrize(
    ("reason", "age", "started", "waited"),
    [
        ("FailedScheduling", 100, False, True),
        ("Failed", 100, False, True),
        ("Failed", 100, True, False),
        ("FailedScheduling", 3000, False, False),  # long before the deadline: the pod started later
        ("Unhealthy", 100, False, False),
    ],
)
@pytest.mark.parametrize("of_train_job", [False, True])
def test_a_deadline_that_passed_before_a_pod_started_names_what_the_pod_waited_for(
    reason: str, age: float, started: bool, waited: bool, of_train_job: bool
) -> None:
    world = TrainJobObjects(age=4000)
    world.event(world.pods[0], reason, "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.", age=age)
    if started:
        world.event(world.pods[0], "Started", "Started container node", kind="Normal", age=90)
    world.without_pods()
    if of_train_job:
        world.without_children()
        late = "TrainJob was active longer than the specified deadline"
        world.train_job["status"] = {
            "conditions": [condition("Failed", reason="DeadlineExceeded", message=late)],
            "jobsStatus": [{"name": "node", "ready": 0}],
        }
    else:
        failed(world, "DeadlineExceeded", "Job was active longer than specified deadline")

    found = world.verdict().findings[0]

    assert found.cause == "deadline-exceeded"
    assert (
        found.summary.endswith(
            "a pod waited to start: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu"
        )
        is waited
    )
    assert found.advice.startswith("Correct what kept the pod from starting") is waited


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        ((0, 1, 2), "Rank 3 did not fail: look there first. "),
        ((0,), ""),
        ((0, 1), ""),
        ((0, 1, 2, 3), ""),
        ((0, 3, 2), "Rank 1 "),
    ],
)
def test_the_ranks_for_which_the_others_waited_are_named(failing: tuple[int, ...], words: str) -> None:
    world = TrainJobObjects(nodes=4)
    for rank in failing:
        world.ended(
            134, pod=rank, message="Watchdog caught collective operation timeout: WorkNCCL(OpType=BARRIER)"
        )

    (found,) = world.verdict().findings

    assert found.advice.partition("is the cause. ")[2].startswith(
        f"{words}" if words else "Compare all logs: "
    )
