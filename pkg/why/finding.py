# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""A finding: one reason why a TrainJob does not run, with evidence and advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from controller_runtime import log
from controller_runtime.machinery import JSON

from pkg.why.rules import CAUSES, RULES, Severity

_MOST_EVIDENCE: Final = 12
_LONGEST: Final = 2048
"""Maximum length of a line in a finding. Lines may quote long messages of containers or controllers."""
_MOST_SUBJECTS: Final = 3
_ORDER: Final = {cause: number for number, cause in enumerate(CAUSES)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause, as :mod:`pkg.why.rules` describes it, with the objects and the evidence."""

    rule: str
    summary: str
    subjects: tuple[str, ...]
    """The objects that the finding is about, such as ``Pod llama-node-0-0-x``."""
    evidence: tuple[str, ...]
    advice: str
    severity: Severity = Severity.ERROR

    @property
    def cause(self) -> str:
        """The cause, which scripts may read."""
        return self.rule.partition("/")[0]

    @property
    def rank(self) -> tuple[int, int]:
        """The sort key: the most severe finding comes first, then the finding with the most specific cause."""
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


def found(
    rule: str, about: object, *evidence: str | None, severity: Severity | None = None, **named: object
) -> Finding:
    """Return the finding of a rule about an object or a list of objects.

    ``named`` are the values for the rule's templates; a value at the end may be empty. Evidence that is None is left
    out.
    """
    of = RULES[rule]
    subjects = tuple(map(str, about)) if isinstance(about, list) else (str(about),)
    summary, advice = of.summary.format_map(named).rstrip(" :"), of.remedy.format_map(named)
    lines = tuple(line for line in evidence if line is not None)
    return Finding(rule, summary, subjects, lines, advice, of.severity if severity is None else severity)


def merged(findings: list[Finding]) -> list[Finding]:
    """Sort the findings, and merge findings that have the same cause and summary."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for each in findings:
        groups.setdefault((each.cause, each.summary), []).append(each)
    joined = []
    for group in groups.values():
        gravest = min(group, key=lambda each: each.rank)
        subjects = dict.fromkeys(name for each in group for name in each.subjects)
        evidence = dict.fromkeys(line for each in group[:_MOST_SUBJECTS] for line in each.evidence)
        shown = tuple(log.cut(each, _LONGEST) for each in tuple(evidence)[:_MOST_EVIDENCE])
        summary, advice = log.cut(gravest.summary, _LONGEST), log.cut(gravest.advice, _LONGEST)
        joined.append(Finding(gravest.rule, summary, tuple(subjects), shown, advice, gravest.severity))
    return sorted(joined, key=lambda each: each.rank)
