# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A finding: one cause why a TrainJob does not run, with evidence and advice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from controller_runtime import log
from controller_runtime.machinery import JSON

from pkg.why.catalog import CAUSES

_MOST_EVIDENCE: Final = 12
_LONGEST: Final = 2048
"""Maximum number of characters in a line of a finding. A line may repeat the message of a container or controller."""
_MOST_SUBJECTS: Final = 3
_ORDER: Final = {cause: number for number, cause in enumerate(CAUSES)}


class Severity(StrEnum):
    """The weight of a finding, the gravest first."""

    ERROR = "error"
    """Nothing changes until a fault is corrected."""
    WAITING = "waiting"
    """Nothing is wrong: the TrainJob waits for a person, a queue or free capacity."""
    NOTE = "note"
    """Worth knowing, but not the reason why the TrainJob does not run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause. ``summary`` is a clause that can follow a colon, without a full stop."""

    cause: str
    summary: str
    subjects: tuple[str, ...]
    """The objects concerned, as ``Pod llama-node-0-0-x``."""
    evidence: tuple[str, ...]
    advice: str
    severity: Severity = Severity.ERROR

    @property
    def rank(self) -> tuple[int, int]:
        """The sort key of findings: the gravest first, then the most specific."""
        return list(Severity).index(self.severity), _ORDER[self.cause]

    @property
    def about(self) -> str:
        """The objects concerned, in one line."""
        more = len(self.subjects) - _MOST_SUBJECTS
        return ", ".join(self.subjects[:_MOST_SUBJECTS]) + (f" and {more} more" if more > 0 else "")

    def to_dict(self) -> dict[str, JSON]:
        """Return the finding as JSON."""
        return {
            "cause": self.cause,
            "severity": str(self.severity),
            "summary": self.summary,
            "subjects": list(self.subjects),
            "evidence": list(self.evidence),
            "advice": self.advice,
        }


def merged(findings: list[Finding]) -> list[Finding]:
    """Return the findings in order. Findings with the same cause and summary become one."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for each in findings:
        groups.setdefault((each.cause, each.summary), []).append(each)
    joined = [_joined(group) for group in groups.values()]
    return sorted(joined, key=lambda each: each.rank)


def _joined(group: list[Finding]) -> Finding:
    gravest = min(group, key=lambda each: each.rank)
    subjects = dict.fromkeys(name for each in group for name in each.subjects)
    evidence = dict.fromkeys(line for each in group[:_MOST_SUBJECTS] for line in each.evidence)
    return Finding(
        gravest.cause,
        log.cut(gravest.summary, _LONGEST),
        tuple(subjects),
        tuple(log.cut(each, _LONGEST) for each in tuple(evidence)[:_MOST_EVIDENCE]),
        log.cut(gravest.advice, _LONGEST),
        gravest.severity,
    )
