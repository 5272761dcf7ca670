# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl events``: prints the events of a TrainJob and of all objects that belong to it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from pkg.why import LiveObject, Snapshot, deletion_of, groups, kinds
from pkg.why.liveobject import ago, moment
from pkg.why.snapshot import event_time

from trainerctl.cli import live, streams
from trainerctl.cli.terminal import Console


async def events_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the events, the oldest first.

    Raises:
        StatusError: the TrainJob cannot be read.
    """
    async with live.connect(arguments) as cluster:
        snapshot = await cluster.snapshot(arguments.name, explains=False)
    if reason := snapshot.unread.get(kinds.EVENT):
        streams.say_error(reason)
        return 1
    found = [
        each for each in of_all(snapshot) if arguments.types is None or each.text("type") in arguments.types
    ]
    if arguments.output == "json":
        out.write_json({"apiVersion": "v1", "kind": "List", "items": [dict(each.data) for each in found]})
    elif not found:
        streams.say_error(no_events(snapshot, arguments.types))
    else:
        print_table(snapshot, found, out)
    if arguments.output != "json":
        for note in notes(snapshot):
            streams.say_note(note)
    return 0


def of_all(snapshot: Snapshot) -> list[LiveObject]:
    """Return the events of a TrainJob and its objects, the oldest first.

    The objects are its JobSet, Jobs, pods, groups and Workloads. Removed JobSets, Jobs and pods are included.
    """
    objects = [
        *snapshot.owners,
        *snapshot.all_pods,
        *groups(snapshot),
        *snapshot.children(kinds.WORKLOAD, snapshot.owners),
    ]
    found = [event for each in objects for event in snapshot.events(each)] + snapshot.events_of_removed()
    return sorted(found, key=lambda each: event_time(each) or snapshot.now)


def notes(snapshot: Snapshot) -> Iterator[str]:
    """Yield why and since when the TrainJob is Failed and when it will be deleted, as far as no event says so."""
    job = snapshot.train_job
    failed = job.condition("Failed")
    reason, message = str(failed.get("reason")), str(failed.get("message"))
    if job.is_true("Failed") and not any(each.text("reason") == reason for each in of_all(snapshot)):
        since = ago(moment(failed, "lastTransitionTime"), snapshot.now)
        yield f"{job} is Failed since {since}, and no event says so: {reason}: {message}"
    if (deletion := deletion_of(snapshot)) is not None and not deletion.is_announced:
        yield f"{job} {'was ' if deletion.is_overdue else ''}{deletion}, because {deletion.field}"


def no_events(snapshot: Snapshot, types: Iterable[str] | None = None) -> str:
    """Return a message about a TrainJob of which no event of these types can be read."""
    job = snapshot.train_job
    if types is not None and of_all(snapshot):
        return f"no events of type {' or '.join(types)} of {job}; without --types, there are others"
    return (
        f"no events of {job}: an API server keeps them for one hour unless its flag --event-ttl says otherwise; "
        f"what the objects still say: trainerctl why {job.name} -n {job.namespace}"
    )


def print_table(snapshot: Snapshot, found: Iterable[LiveObject], out: Console) -> None:
    """Print each event on one line."""
    out.table(("AGE", "TYPE", "REASON", "OBJECT", "MESSAGE"), [_row(snapshot, each) for each in found])


def _row(snapshot: Snapshot, event: LiveObject) -> tuple[str, ...]:
    count = event.number("series", "count") or event.number("count")
    age = ago(event_time(event), snapshot.now) + (f" (x{count})" if count > 1 else "")
    subject = f"{event.text('involvedObject', 'kind')}/{event.text('involvedObject', 'name')}"
    return age, event.text("type"), event.text("reason"), subject, event.text("message").strip()
