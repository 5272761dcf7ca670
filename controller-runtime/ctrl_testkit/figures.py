# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Figures that tests measure: printed at the end of the run beside their bounds, and asserted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Print a figure at the end of the run beside its bound, and assert it."""
    lines = request.config.stash.setdefault(FIGURES, [])

    def show(what: str, value: float, *, at_most: float, unit: str = "s") -> None:
        lines.append(f"{what}: {value:.4g} {unit} (at most {at_most:g})")
        assert value <= at_most, lines[-1]

    return show


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the figures that were measured."""
    if lines := config.stash.get(FIGURES, []):
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.line(line)
