# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The calm part of a life: users act one after the other, and the manager must follow each of them within a minute.

In the first part of a life a manager may be late for many reasons. Here the only disturbances are a few seconds of
failing requests or broken watches. After them, the manager must catch up.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

import anyio
from controller_runtime.machinery.meta import parse_time
from controller_runtime.simtest import Event, Simulation

from pkg.apis.jobset.v1alpha2 import JobSet
from pkg.apis.trainer.v1alpha1 import TrainJob
from testkit.sim.administrators import Administrators
from testkit.sim.cluster import Nodes
from testkit.sim.objects import (
    by_name,
    by_uid,
    controller,
    is_overdue,
    is_suspended,
    is_true,
    owned,
    refusals_expected,
)
from testkit.sim.restchecks import RestChecks, state_problem
from testkit.sim.steps import Act, about, perform, settled
from testkit.sim.stories import Stories
from testkit.sim.users import OTHERS, Users

Document = dict[str, Any]
Look = Callable[[Simulation, Document], Awaitable[str | None]]
"""Returns a problem of a TrainJob, or None."""
_LATE: Final = 45.0
"""A TrainJob must have failed within this many seconds after its deadline."""
_CLOCKS: Final = 6.0
"""Tolerance in seconds: clocks of managers differ from the server's, and times are rounded to whole seconds."""
_LONG: Final = 190.0
"""After this many seconds of failures, the next retry is minutes away."""
_STORIES: Final = 3
"""The number of stories in a whole life."""


class Calm:
    """Lets users act, and checks that the manager follows."""

    def __init__(self, users: Users, administrators: Administrators, end: RestChecks, nodes: Nodes) -> None:
        self._users = users
        self._stories = Stories(users, nodes)
        self._administrators = administrators
        self._end = end

    async def check(self, sim: Simulation) -> None:
        """Perform a few sequences of actions, about one TrainJob each; after each action, check all TrainJobs."""
        rng = random.Random(f"{sim.seed}/calm")
        for process in sim.processes.values():
            process.drift = 0.0  # times of the server are compared with this clock
        sim.on_change(functools.partial(is_in_time, sim))
        for name in self._users.pick_names(rng, max(1, round(_STORIES * sim.actions))):
            await self._step(sim, rng, about(name, self._users.replace))
            for act in rng.sample(self._acts(name), 4):
                await self._step(sim, rng, act)
        self._stories.let_pods_end()
        await self._end.check_rest(sim)

    def _acts(self, name: str) -> list[Act]:
        users = self._users
        stories = self._stories
        mine = [users.suspend, users.suspend, users.resume, users.resume, users.edit, users.annotate_status]
        return [
            *(
                about(name, act)
                for act in [
                    *mine,
                    users.replace,
                    users.obstruct,
                    users.create_obstructed,
                    self.resume_without_runtime,
                    stories.delete_siblings,
                    stories.relabel,
                    stories.audit_meanwhile,
                    stories.delete_held,
                    stories.orphan_unseen,
                    stories.resume_beside_deleted,
                    stories.resume_late,
                    stories.expire_unreachable,
                    stories.edit_at_once,
                    stories.tamper,
                    stories.hold_long,
                ]
            ),
            users.delete_child,
            users.hold_child,
            users.clear,
            self._administrators.edit_runtime,
            self._administrators.retire_runtime,
            self._administrators.strip_runtime,
        ]

    async def resume_without_runtime(self, sim: Simulation, rng: random.Random, name: str) -> None:
        """Resume a TrainJob while its runtime is missing, and delete its JobSet.

        A webhook may deny the change of the TrainJob.
        """
        job = by_name(sim, TrainJob, {"metadata": {"namespace": "default", "name": name}})
        if job is not None:
            async with anyio.create_task_group() as group:
                runtime = job["spec"]["runtimeRef"]["name"]
                seconds = rng.choice([0.0, _LONG])
                group.start_soon(self._administrators.lose_runtime, sim, rng, runtime, seconds)
                await anyio.sleep(rng.choice([0.0, 0.02, 1.0]) * rng.random())
                await self._users.resume(sim, rng, name)
                for each in owned(sim, JobSet, job) if rng.random() < 0.5 else ():
                    with refusals_expected():
                        await sim.client().delete(JobSet.from_dict(each), propagation="Foreground")

    async def _step(self, sim: Simulation, rng: random.Random, act: Act) -> None:
        await perform(sim, rng, act)
        await settled(sim, act, functools.partial(self._problem, sim, state_problem))
        # Before the next event wakes all TrainJobs, so that a lost wake-up is found.
        await settled(sim, act, functools.partial(self._problem, sim, self._content))
        await sim.rules.check_rest()
        await self._end.touch(sim)
        await settled(sim, act, functools.partial(self._problem, sim, self._content))

    async def _problem(self, sim: Simulation, of_job: Look) -> str | None:
        for job in sim.server.objects(TrainJob):
            if job["spec"].get("managedBy") == OTHERS:
                continue
            if (found := await of_job(sim, job)) is not None:
                return f"{found}: {job['metadata']['name']}"
        try:
            self._end.check_runtimes(sim)
        except AssertionError as error:
            return str(error)
        return None

    async def _content(self, sim: Simulation, job: Document) -> str | None:
        """Return how a TrainJob's children differ from a fresh render, or None.

        A running JobSet that differs from the render is not compared.
        """
        if (found := await state_problem(sim, job)) is not None:
            return found
        if is_true(job, "Complete") or is_true(job, "Failed"):
            return None
        if not is_suspended(job) and not await self._end.is_fresh(sim, job):
            return None  # siblings of a running JobSet do not follow later changes
        try:
            await self._end.check_children(sim, job)
        except AssertionError as error:
            return str(error)
        return None


def is_in_time(sim: Simulation, event: Event) -> None:
    """Check that a TrainJob fails soon after its deadline, but not earlier, and gets no JobSet after the deadline."""
    document = event.document
    if event.table.properties.gvk == JobSet.gvk and event.before is None:
        job = by_uid(sim, TrainJob, (controller(document) or {}).get("uid", ""))
        late = None if job is None else _late(job)
        assert late is None or late < _CLOCKS, (
            f"a JobSet is built {late:.0f} s after the deadline: {document['metadata']['name']}"
        )
    is_job = event.table.properties.gvk == TrainJob.gvk
    if is_job and event.before is not None:
        _is_timed(document, event.before)
    if not is_job or not is_overdue(document) or is_overdue(event.before or document):
        return
    late, name = _late(document), document["metadata"]["name"]
    assert late is not None, f"a TrainJob without a deadline has failed at it: {name}"
    assert late > -_CLOCKS, f"a TrainJob fails {-late:.0f} s before its deadline: {name}"
    assert late < _LATE, f"a TrainJob fails {late:.0f} s after its deadline: {name}"


def _is_timed(job: Document, before: Document) -> None:
    """Check that the condition Suspended has the current time when its status changes."""
    old, new = (_suspended(one) for one in (before, job))
    if new and old.get("status") != new["status"]:
        passed = (datetime.now(UTC) - parse_time(new["lastTransitionTime"])).total_seconds()
        assert abs(passed) < _CLOCKS, (
            f"the condition Suspended changes with a time of {passed:.0f} s ago: {job['metadata']['name']}"
        )


def _suspended(job: Document) -> Document:
    """Return the condition Suspended, or an empty document if there is none."""
    found = job.get("status", {}).get("conditions") or ()
    return next((each for each in found if each["type"] == "Suspended"), {})


def _late(job: Document) -> float | None:
    """Return the seconds since a TrainJob's deadline; None if it has none, is suspended or has just been resumed."""
    suspended, seconds = _suspended(job), job["spec"].get("activeDeadlineSeconds")
    if not seconds or is_suspended(job) or suspended.get("status") == "True":
        return None
    began = parse_time(suspended.get("lastTransitionTime") or job["metadata"]["creationTimestamp"])
    return (datetime.now(UTC) - began).total_seconds() - float(seconds)
