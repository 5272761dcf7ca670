# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Reports the states of TrainJobs and JobSets that occurred in the simulations."""

import pytest

from pkg.metrics import TRAIN_JOB_RECONCILES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how often TrainJobs were reconciled in each state, the most frequent state first.

    A process counts only its own reconciles: those of simulations in worker processes are missing.
    """
    counts = {
        sample.labels["state"]: int(sample.value)
        for family in TRAIN_JOB_RECONCILES.collect()
        for sample in family.samples
        if sample.name.endswith("_total")
    }
    if any(counts.values()):
        terminalreporter.section("reconciles of TrainJobs by state")
        for state, count in sorted(counts.items(), key=lambda each: -each[1]):
            terminalreporter.line(f"{count:8d} {state}")
