# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Signals while a command has something to clean up. The other cases are in test_streams, with processes."""

import signal
from collections.abc import Iterator

import pytest

from trainerctl.cli.signals import Signals

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _default_handlers() -> Iterator[None]:
    # Of a process that runs in the background, the parent may ignore some of them.
    former = {number: signal.signal(number, signal.SIG_DFL) for number in ENDING}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


def test_the_first_signal_decides_the_exit_code_and_each_one_cancels() -> None:
    calls: list[int] = []
    signals = Signals()
    signals.cancel = lambda: calls.append(1)
    signals.install()

    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGHUP)

    assert (signals.received, len(calls)) == (signal.SIGTERM, 2)


def test_a_signal_after_the_work_changes_nothing() -> None:
    signals = Signals()
    signals.install()
    signals.ignore()

    signal.raise_signal(signal.SIGTERM)

    assert signals.received is None


def test_a_signal_that_the_parent_process_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signals = Signals()
    signals.install()

    signal.raise_signal(signal.SIGHUP)

    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGTERM) != signal.SIG_IGN
