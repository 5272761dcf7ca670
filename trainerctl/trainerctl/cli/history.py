# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl history``: the TrainJobs that have ended, from their status, and deleted ones, from their events."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from controller_runtime.machinery import JSON
from pkg.why import Thing, kinds
from pkg.why.phase import Phase, phase
from pkg.why.snapshot import event_time
from pkg.why.things import ago, moment, text

from trainerctl.cli import live, streams
from trainerctl.cli.terminal import Console

_ENDED: Final = (Phase.COMPLETE, Phase.FAILED)
_HEAD: Final = ("NAME", "STATE", "ENDED", "TOOK", "REASON")


class Ended(NamedTuple):
    """A TrainJob that has ended or was deleted."""

    namespace: str
    name: str
    state: str
    began: datetime | None
    ended: datetime | None
    reason: str

    def to_dict(self) -> dict[str, JSON]:
        """Return it as JSON."""
        return {
            "namespace": self.namespace,
            "name": self.name,
            "state": self.state,
            "began": self.began.isoformat() if self.began else None,
            "ended": self.ended.isoformat() if self.ended else None,
            "reason": self.reason,
        }


async def history_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the TrainJobs that have ended, the last one first.

    Raises:
        StatusError: they cannot be read.
    """
    async with live.connect(arguments) as cluster:
        namespace = "" if arguments.all_namespaces else cluster.namespace
        jobs = await cluster.all(kinds.TRAIN_JOB, namespace=namespace)
        events = await cluster.all(
            kinds.EVENT, namespace=namespace, fields={"involvedObject.kind": "TrainJob"}
        )
    found = ended(jobs, events)
    if arguments.limit is not None:
        found = found[: arguments.limit]
    if arguments.output == "json":
        out.write_json([each.to_dict() for each in found])
    elif not found:
        streams.say_error(f"no TrainJob has ended{f' in namespace {namespace}' if namespace else ''}")
    else:
        out.table(_HEAD, [_row(each, datetime.now(UTC), bool(namespace)) for each in found])
    return 0


def ended(jobs: list[Thing], events: list[Thing]) -> list[Ended]:
    """Return the TrainJobs that have ended, and those that only events know, the last one first."""
    uids = {job.uid for job in jobs}
    found = [_from_status(job) for job in jobs if phase(job) in _ENDED]
    found += _from_events([each for each in events if each.text("involvedObject", "uid") not in uids])
    oldest = datetime.min.replace(tzinfo=UTC)
    return sorted(found, key=lambda each: each.ended or oldest, reverse=True)


def _from_status(job: Thing) -> Ended:
    state = phase(job)
    condition = job.condition(state)
    reason = ": ".join(filter(None, (text(condition, "reason"), text(condition, "message"))))
    at = moment(condition, "lastTransitionTime")
    return Ended(job.namespace, job.name, state, job.created, at, reason)


def _from_events(events: list[Thing]) -> Iterator[Ended]:
    latest: dict[str, Thing] = {}
    oldest = datetime.min.replace(tzinfo=UTC)
    for event in sorted(events, key=lambda each: event_time(each) or oldest):
        latest[event.text("involvedObject", "uid")] = event
    for event in latest.values():
        names = event.text("involvedObject", "namespace"), event.text("involvedObject", "name")
        reason = f"{event.text('reason')}: {' '.join(event.text('message').split())}"
        yield Ended(*names, "Deleted", None, event_time(event), reason)


def _row(job: Ended, now: datetime, with_name_alone: bool) -> tuple[str, ...]:
    took = ago(job.began, job.ended) if job.began is not None and job.ended is not None else ""
    name = job.name if with_name_alone else f"{job.namespace}/{job.name}"
    return name, job.state, f"{ago(job.ended, now)} ago", took, job.reason
