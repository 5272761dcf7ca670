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

    assert world.verdict().findings[0].summary == "the container node failed with exit code 1"


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
