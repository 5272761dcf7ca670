# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Errors that a training prints before it ends: the line follows the exit code, and the advice fits the error."""

import time
from typing import Any

import pytest

from testkit.why.world import TrainJobObjects

COMPARE = "Compare all logs: trainerctl logs llama -n team-a --step node --all. Read its log: "


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "The memory of the GPU ran out"),
        ("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while", "The memory of the GPU ran out"),
        ("[rank0]:[E ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout", COMPARE),
        ("DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.", "Not all ranks met"),
        ("RuntimeError: unable to write to file </torch_19_3>: No space left on device (28)", "The shared memory is full"),
        ("OSError: [Errno 28] No space left on device", "A disk is full"),
        ("401 Client Error: Unauthorized for url: https://hub.example/api/models/x", "A server refused the credentials"),
        ("ImportError: libcudnn.so.9: cannot open shared object file", "The image lacks a package"),
        ("ValueError: bad learning rate", ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["log", "message", "crash loop"])
def test_the_line_that_tells_the_cause_is_in_the_sentence(line: str, advice: str, where: str) -> None:
    world = TrainJobObjects()
    if where == "crash loop":
        last: Any = {"exitCode": 1, "reason": "Error"}
        world.waits("CrashLoopBackOff", "back-off 40s", last=last, restarts=4)
    else:
        world.ended(1, message=line if where == "message" else "")
    if where != "message":
        world.logs[world.pods[0]["metadata"]["name"], "node"] = [
            "step 10",
            line,
            "  in a traceback",
            "cleanup done",
        ]

    found = world.verdict().findings[0]

    assert found.cause == ("crash-loop" if where == "crash loop" else "container-failed")
    assert found.summary.endswith(f": {line}") is bool(advice)
    assert advice in found.advice
    read = "Read its log: trainerctl logs llama -n team-a --step node --rank 0"
    assert found.advice.startswith(read) is not bool(advice)
    assert read in found.advice


def test_an_error_before_the_last_traceback_did_not_end_the_training() -> None:
    world = TrainJobObjects()
    world.ended(1)
    world.logs[world.pods[0]["metadata"]["name"], "node"] = [
        "ModuleNotFoundError: No module named 'apex'", "Traceback (most recent call last):", "ValueError: bad learning rate",
    ]  # fmt: skip

    found = world.verdict().findings[0]

    assert found.summary == "the container node failed with exit code 1: ValueError: bad learning rate"
    assert found.advice.startswith("Read its log: ")


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
    world.ended(1)
    world.logs[world.pods[0]["metadata"]["name"], "node"] = TORCHRUN.format(error=error).splitlines()

    found = world.verdict().findings[0]

    assert found.summary == f"the container node failed with exit code 1: {error}"
    assert found.advice.startswith(advice)
    assert found.evidence[-1] == f"log of node: {error}"


def test_a_syntax_error_has_no_traceback() -> None:
    world = TrainJobObjects()
    world.ended(1)
    world.logs[world.pods[0]["metadata"]["name"], "node"] = [
        '  File "/workspace/train.py", line 2', "    def train(:", "              ^", "SyntaxError: invalid syntax",
    ]  # fmt: skip

    assert world.verdict().findings[0].summary.endswith(" exit code 1: SyntaxError: invalid syntax")


@pytest.mark.parametrize(
    "lines", [["No space left on device", *["step"] * 20], ["Name or service not known", *["step"] * 20]]
)
def test_an_error_long_before_the_end_of_a_log_is_not_the_cause(lines: list[str]) -> None:
    world = TrainJobObjects()
    world.ended(1)
    world.logs[world.pods[0]["metadata"]["name"], "node"] = lines

    assert world.verdict().findings[0].summary == "the container node failed with exit code 1"


@pytest.mark.parametrize("loops", [False, True])
def test_an_empty_log_is_not_advised(loops: bool) -> None:
    world = TrainJobObjects()
    if loops:
        world.waits("CrashLoopBackOff", "back-off 40s", last={"exitCode": 1, "reason": "Error"}, restarts=4)
    else:
        world.ended(1)
    world.logs[world.pods[0]["metadata"]["name"], "node"] = []

    advice = world.verdict().findings[0].advice

    assert advice.startswith("It wrote nothing.")
    assert "trainerctl logs" not in advice
    assert advice.endswith("for a crash of Python.")


@pytest.mark.parametrize(
    "line",
    ["exec /usr/bin/python: exec format error",
     "standard_init_linux.go:228: exec user process caused: exec format error"],
)  # fmt: skip
def test_an_image_for_another_architecture_is_a_command_that_cannot_be_executed(line: str) -> None:
    world = TrainJobObjects()
    world.ended(255)
    world.logs[world.pods[0]["metadata"]["name"], "node"] = [line]

    found = world.verdict().findings[0]

    assert (found.cause, line in found.summary) == ("command-not-found", True)
    assert "architecture" in found.advice


def test_long_lines_are_cut_and_read_in_bounded_time() -> None:
    world = TrainJobObjects()
    world.ended(1)
    line = f"CUDA out of memory {'9' * (1 << 16)}"
    world.logs[world.pods[0]["metadata"]["name"], "node"] = [line, *["9" * (1 << 16)] * 19]

    began = time.process_time()
    found = world.verdict().findings[0]

    assert time.process_time() - began < 2
    assert found.summary.endswith(f": {line[:160]}…")


def test_of_ranks_that_failed_in_the_same_second_the_lowest_is_named_first() -> None:
    world = TrainJobObjects()
    for number in (1, 0):
        world.ended(1, pod=number)

    found = world.verdict().findings[0]

    assert found.subjects == tuple(f"Pod {pod['metadata']['name']}" for pod in world.pods)
    assert found.advice.endswith(" --rank 0")


def test_a_container_that_the_deadline_of_its_pod_ended_did_not_fail() -> None:
    world = TrainJobObjects()
    world.ended(143)
    world.pods[0]["status"].update(reason="DeadlineExceeded", message="Pod was active too long")

    assert [each.cause for each in world.verdict().findings] == ["deadline-exceeded"]


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("container node has no command: local processes have no images", "Set spec.trainer.command"),
        ("container node runs sshd: not supported by local processes", "Use a cluster that runs containers"),
    ],
)
def test_what_local_processes_cannot_run_has_a_remedy(message: str, advice: str) -> None:
    world = TrainJobObjects()
    world.waits("ProcessesUnsupported", message)

    assert world.verdict().findings[0].advice.startswith(advice)
