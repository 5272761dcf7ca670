# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Progress lines without a terminal."""

import io

from controller_runtime.envtest import PlainProgress


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_task_is_told_once_when_it_ends_and_now_and_then_while_it_takes_long() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = PlainProgress(stream, every=10, clock=clock)
    progress.start("build etcd")
    for clock.now in (1.0, 9.0, 12.0, 13.0):
        progress.update("build etcd", done=int(clock.now), total=40, detail="bbolt")
    clock.now = 20.0
    progress.finish("build etcd", "ready")
    assert stream.getvalue() == "build etcd: 12/40 bbolt (12.0 s)\nbuild etcd: ready (20.0 s)\n"


def test_a_failed_task_says_why() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream, clock=Clock())
    progress.start("build etcd")
    progress.fail("build etcd", "no go")
    assert stream.getvalue() == "build etcd: failed: no go (0.0 s)\n"
