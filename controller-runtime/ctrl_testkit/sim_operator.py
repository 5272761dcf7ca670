# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An operator that uses all parts of the library, and its invariants: the scenario that finds bugs of the library.

A ConfigMap has a value and the name of a PriorityClass. The operator adds a finalizer to the ConfigMap, and keeps a
Secret with the ConfigMap's value and the value of the class. The operator deletes the ConfigMap when the ConfigMap's
time to live is over, and it deletes the Secret before the ConfigMap is removed. The operator records an event for each
Secret that it writes. When a PriorityClass changes, the operator waits a moment for more changes.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import anyio
import msgspec

import controller_runtime as ctrl
from controller_runtime import cache, controller, event, handler, predicate, simtest
from controller_runtime.apis.coordination.v1 import Lease
from controller_runtime.apis.core.v1 import ConfigMap, Namespace, Secret
from controller_runtime.apis.meta.v1 import ObjectMeta
from controller_runtime.apis.scheduling.v1 import PriorityClass
from controller_runtime.client import MERGE, Client, ignore_not_found, merge_from, raw_patch
from controller_runtime.controller import controllerutil
from controller_runtime.machinery import Object
from controller_runtime.machinery.errors import AlreadyExistsError, NotFoundError
from controller_runtime.machinery.meta import parse_time
from controller_runtime.manager import ControllerDefaults
from controller_runtime.recorder import EventRecorder
from controller_runtime.rest import Request
from controller_runtime.simtest import (
    LOOP_START,
    Event,
    Observer,
    Process,
    Simulation,
    is_fenced_write,
    miss_changes,
)

FINALIZER = "example.com/secret"
NOTED = "example.com/noted"
CLASS = "data.class"
CLASSES = ("low", "high")
NAMESPACES = ("default", "other")
BROKEN = "broken"
QUIET = 60.0
BUSY = 480.0
"""Seconds of a life after which the operator's own code and the rivals cause no more trouble."""
LEADER = "leader"
BATCH = 2.0
"""Seconds by which some requests for a changed class are delayed, so that several changes are handled together."""
PERSON = "maintenance"
"""The holder identity with which a person takes the lease."""


class Trouble:
    """The failure that the operator's own code causes in each reconcile. It is set for a while in the calm part of a
    life.
    """

    now: ClassVar[str] = ""


def content(source: dict[str, Any], classes: dict[str, int]) -> str:
    """Return the content of a ConfigMap's Secret."""
    data = source["data"]
    text = f"{data['value']} {classes.get(data['class'], 0)}"
    return base64.b64encode(text.encode()).decode()


def expires(source: dict[str, Any]) -> datetime | None:
    ttl = source["data"].get("ttl")
    created = parse_time(source["metadata"]["creationTimestamp"])
    return None if ttl is None else created + timedelta(seconds=int(ttl))


def fail_sometimes() -> None:
    """Fail now and then, as an operator's code that handles events does."""
    is_due = random.random() < 0.05 and anyio.current_time() - LOOP_START < BUSY
    if is_due or Trouble.now == "handled":
        raise OSError("a handler of events fails now and then")


class Strays(handler.EnqueueRequestForObject):
    """Adds a request for each Secret, because only this request finds a Secret without a ConfigMap."""

    def create(self, evt: event.CreateEvent[Object], queue: handler.Queue) -> None:
        fail_sometimes()
        super().create(evt, queue)

    def update(self, evt: event.UpdateEvent[Object], queue: handler.Queue) -> None:
        fail_sometimes()
        super().update(evt, queue)


class Keeper:
    """The reconciler."""

    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder

    async def reconcile(self, request: ctrl.Request) -> ctrl.Result:
        try:
            return await self._reconcile(await self._client.get(ConfigMap, request))
        except NotFoundError:
            await self._delete_stray(request)
            return ctrl.Result()

    async def _delete_stray(self, key: ctrl.Request) -> None:
        """Delete a Secret without a ConfigMap, by its name."""
        with ignore_not_found(Secret, key):
            secret = await self._client.get(Secret, key)
            await self._client.delete(
                Secret.from_dict({"metadata": {"namespace": key.namespace, "name": secret.name}})
            )

    async def _reconcile(self, source: ConfigMap) -> ctrl.Result:
        if source.metadata.deletion_timestamp is not None:
            return await self._let_go(source)
        if FINALIZER not in (source.metadata.finalizers or ()):
            source = await self._patch(source, [*(source.metadata.finalizers or ()), FINALIZER])
        await self._cancel_now_and_then()
        if (source.data or {})["class"] == BROKEN:
            raise ValueError("a class that only its user can mend")
        due = expires(source.to_dict())
        left = None if due is None else due - datetime.now(UTC)
        if left is not None and left <= timedelta():
            await self._client.delete(source, preconditions={"uid": source.metadata.uid or ""})
            # The event of our own write does not cause a reconcile, so this reconcile goes on.
            return await self._reconcile(await self._client.get(ConfigMap, source.key))
        await self._keep_secret(source)
        await self._note(source)
        return ctrl.Result(requeue_after=left)

    @staticmethod
    async def _cancel_now_and_then() -> None:
        """Fail sometimes: with an error, or like code that awaits a future that other code has cancelled."""
        if Trouble.now == "raised":
            raise OSError("a service that the operator needs is away")
        is_due = random.random() < 0.03 and anyio.current_time() - LOOP_START < BUSY
        if is_due or Trouble.now == "cancelled":
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            ended.cancel()
            await ended

    async def _patch(self, source: ConfigMap, finalizers: list[str]) -> ConfigMap:
        wanted = source.deep_copy()
        wanted.metadata.finalizers = finalizers
        return await self._client.patch(wanted, merge_from(source, optimistic_lock=True))

    async def _note(self, source: ConfigMap) -> None:
        """Write the Secret's value to an annotation, and read the ConfigMap back.

        The patch has no optimistic lock, so the server may apply it after changes that were not read.
        """
        value = (source.data or {})["value"]
        if (source.metadata.annotations or {}).get(NOTED) != value:
            wanted = source.deep_copy()
            wanted.metadata.annotations = {**(source.metadata.annotations or {}), NOTED: value}
            with ignore_not_found(source):
                await self._client.patch(wanted, merge_from(source))
                await self._client.get(ConfigMap, source.key)

    async def _let_go(self, source: ConfigMap) -> ctrl.Result:
        finalizers = source.metadata.finalizers or []
        if FINALIZER in finalizers:
            with ignore_not_found(Secret, source.key):
                secret = await self._client.get(Secret, source.key)
                await self._client.delete(secret, preconditions={"uid": secret.metadata.uid or ""})
            await self._patch(source, [each for each in finalizers if each != FINALIZER])
            with ignore_not_found(source):
                await self._client.get(ConfigMap, source.key)
        return ctrl.Result()

    async def _keep_secret(self, source: ConfigMap) -> None:
        name = (source.data or {})["class"]
        classes: dict[str, int] = {}
        with ignore_not_found(PriorityClass, ("", name)):
            classes[name] = (await self._client.get(PriorityClass, ("", name))).value or 0
        wanted = content(source.to_dict(), classes)
        try:
            live = await self._client.get(Secret, source.key)
        except NotFoundError:
            live = None
        if live is not None and (live.data or {}).get("content") == wanted:
            return
        metadata = ObjectMeta(namespace=source.namespace, name=source.name)
        secret = Secret(metadata=metadata, data={"content": wanted})
        controllerutil.set_controller_reference(source, secret)
        if live is not None and controllerutil.controller_of(live) is None:
            await self._client.delete(live, preconditions={"uid": live.metadata.uid or ""})
        await self._client.apply(secret, field_owner="keeper", force=True)
        self._recorder.event(source, "Normal", "SecretWritten", "the Secret was written")


async def setup(mgr: ctrl.Manager, workers: int = 3) -> None:
    """Register the operator."""
    await mgr.field_indexer.index_field(ConfigMap, CLASS, lambda each: [(each.data or {}).get("class", "")])

    async def of_class(found: PriorityClass) -> list[ctrl.Request]:
        fail_sometimes()
        return [
            ctrl.Request.for_object(each)
            for namespace in NAMESPACES
            for each in await mgr.client.list(ConfigMap, namespace=namespace, fields={CLASS: found.name})
        ]

    async def collect(found: PriorityClass, queue: handler.Queue) -> None:
        for request in await of_class(found):
            queue.add(request, after=random.choice([0.0, BATCH]))

    classes = handler.Funcs[PriorityClass](
        create=lambda evt, queue: collect(evt.object, queue),
        update=lambda evt, queue: collect(evt.new, queue),
        delete=lambda evt, queue: collect(evt.object, queue),
    )
    (
        ctrl.new_controller_managed_by(mgr)
        .for_(ConfigMap, predicates=[predicate.NotOwnWrite()])
        .owns(Secret, predicates=[predicate.NotOwnWrite()])
        .watches(Secret, Strays(), predicates=[predicate.NotOwnWrite()])
        .watches(PriorityClass, classes)
        .with_options(controller.Options(max_concurrent_reconciles=workers, skip_name_validation=True))
        .complete(Keeper(mgr.client, mgr.event_recorder_for("keeper")))
    )


class Users:
    """Actions of people, on few objects, so that several act on the same object."""

    def __init__(self) -> None:
        self._values = 0

    def _data(self, rng: random.Random) -> dict[str, str]:
        self._values += 1
        data = {"value": str(self._values), "class": rng.choice(CLASSES)}
        return data | ({"ttl": str(rng.choice([5, 30, 90]))} if rng.random() < 0.3 else {})

    def _key(self, rng: random.Random, name: str = "") -> dict[str, Any]:
        return {"namespace": "default", "name": name or f"c{rng.randrange(6)}"}

    async def create(self, sim: Simulation, rng: random.Random) -> None:
        with suppress(AlreadyExistsError):
            await sim.client().create(
                ConfigMap.from_dict({"metadata": self._key(rng), "data": self._data(rng)})
            )

    async def stray(self, sim: Simulation, rng: random.Random, name: str = "") -> None:
        """Create a Secret, in most cases one without a ConfigMap; create it again if it was deleted meanwhile."""
        key = self._key(rng, name)
        for _ in range(3):
            with suppress(AlreadyExistsError):
                await sim.client().create(Secret.from_dict({"metadata": key, "data": {"content": "eA=="}}))
            await anyio.sleep(rng.random() * 0.05)

    async def edit(self, sim: Simulation, rng: random.Random, name: str = "", *, lives: bool = False) -> None:
        """Change the data of a ConfigMap one to four times; with ``lives``, the ConfigMap does not expire soon."""
        name = name or self._key(rng)["name"]
        for _ in range(rng.choice([1, 1, 2, 4])):
            await self.change(sim, rng, name, lives=lives)
            await anyio.sleep(rng.random() * 0.02)

    async def change(self, sim: Simulation, rng: random.Random, name: str, *, lives: bool = False) -> None:
        """Change the data of a ConfigMap once."""
        source = ConfigMap.from_dict({"metadata": self._key(rng, name)})
        data = self._data(rng) | ({"ttl": "900"} if lives else {})
        with ignore_not_found(source):
            await sim.client().patch(source, raw_patch(MERGE, msgspec.json.encode({"data": data})))

    async def delete(self, sim: Simulation, rng: random.Random) -> None:
        chosen = ConfigMap.from_dict({"metadata": self._key(rng)})
        with ignore_not_found(chosen):
            await sim.client().delete(chosen)

    async def replace(self, sim: Simulation, rng: random.Random, name: str = "") -> None:
        """Delete a ConfigMap without its finalizer, and create another one of the same name at once."""
        key, data = self._key(rng, name), self._data(rng)
        source = ConfigMap.from_dict({"metadata": key})
        with ignore_not_found(source):
            await sim.client().patch(source, raw_patch(MERGE, b'{"metadata":{"finalizers":null}}'))
            await sim.client().delete(source)
            with suppress(AlreadyExistsError):
                await sim.client().create(ConfigMap.from_dict({"metadata": key, "data": data}))

    async def tamper(self, sim: Simulation, rng: random.Random, name: str = "") -> None:
        """Change or delete a Secret that the operator manages."""
        secret = Secret.from_dict({"metadata": self._key(rng, name)})
        with ignore_not_found(secret):
            if rng.random() < 0.5:
                await sim.client().delete(secret)
            else:
                await sim.client().patch(secret, raw_patch(MERGE, b'{"data":{"content":"eA=="}}'))

    async def reclass(self, sim: Simulation, rng: random.Random) -> None:
        """Change, delete or create a class."""
        found = PriorityClass.from_dict({"metadata": {"name": rng.choice(CLASSES)}, "value": 0})
        number = rng.randrange(1000)
        if rng.random() < 0.3:
            with ignore_not_found(found):
                await sim.client().delete(found)
            return
        found.value = number
        try:
            await sim.client().patch(found, raw_patch(MERGE, msgspec.json.encode({"value": number})))
        except NotFoundError:
            with suppress(AlreadyExistsError):
                await sim.client().create(found)

    async def revalue(self, sim: Simulation, rng: random.Random) -> None:
        """Change the values of all classes."""
        for name in CLASSES:
            found = PriorityClass.from_dict({"metadata": {"name": name}, "value": rng.randrange(1000, 2000)})
            with suppress(AlreadyExistsError):
                await sim.client().create(found)
                continue
            body = msgspec.json.encode({"value": found.value})
            await sim.client().patch(found, raw_patch(MERGE, body))


async def vanish(sim: Simulation, rng: random.Random, name: str) -> None:
    """Delete a Secret, and delete it again soon after the operator has created it.

    Watches are late. Then the changes are compacted and the watches are cut, so that caches find the deletions only in
    a list.
    """
    key = {"namespace": "default", "name": name}
    with sim.server.watches.delays.during(lambda _: 0.3):
        secret = Secret.from_dict({"metadata": key})
        with ignore_not_found(secret):
            await sim.client().delete(secret)
        with anyio.move_on_after(2.0):
            while name not in {each["metadata"]["name"] for each in sim.server.objects(Secret)}:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        await anyio.sleep(rng.random() * 0.1)
        with ignore_not_found(secret):
            await sim.client().delete(secret)
        sim.server.history.compact(keep=0)
        sim.server.watches.cut()


class Rivals:
    """Writers that react to writes of others within 40 ms, often before the answer or the watch event has arrived."""

    def __init__(self, sim: Simulation, users: Users) -> None:
        self._sim = sim
        self._users = users
        self._rng = random.Random(f"{sim.seed}/rivals")
        self._due: list[str] = []
        self._called = anyio.Event()

    def see(self, event: Event) -> None:
        """Note the write of an object, until the busy part of the life is over."""
        if self._sim.loop.time() - LOOP_START > BUSY:
            return
        if event.table.properties.gvk.kind in ("ConfigMap", "Secret") and self._rng.random() < 0.2:
            self._due.append(event.key.name)
            self._called.set()

    async def run(self, sim: Simulation) -> None:
        """Write after others."""
        while True:
            await self._called.wait()
            await anyio.sleep(self._rng.random() * 0.04)
            name, self._due, self._called = self._due[0], [], anyio.Event()
            act = self._rng.choice(
                [*[self._users.edit] * 4, *[self._users.tamper] * 2, *[self._users.replace] * 2, vanish]
            )
            await act(sim, self._rng, name)


class Overtakers(Observer):
    """Users who change an object within milliseconds of the operator's request to write it, each object at most once.

    They change a ConfigMap, and delete or change a Secret.
    """

    def __init__(self, sim: Simulation, rng: random.Random, users: Users) -> None:
        self._sim = sim
        self._rng = rng
        self._users = users
        self._left = {each["metadata"]["name"] for each in sim.server.objects(ConfigMap)}
        self._due: list[tuple[str, str]] = []
        self._called = anyio.Event()

    def sends(self, process: Process, request: Request) -> None:
        """Note the patch of an object that has not been overtaken yet."""
        place, _, name = request.path.rpartition("/")
        resource = place.rpartition("/")[2]
        part = {"configmaps": 0.5, "secrets": 0.2}.get(resource, 0.0)
        if request.method == "PATCH" and name in self._left and self._rng.random() < part:
            self._left.discard(name)
            self._due.append((resource, name))
            self._called.set()

    async def run(self) -> None:
        """Change the objects that are due, until cancelled."""
        while True:
            await self._called.wait()
            due, self._due, self._called = self._due, [], anyio.Event()
            for resource, name in due:
                await anyio.sleep(self._rng.random() * 0.004)
                if resource == "secrets":
                    await self._users.tamper(self._sim, self._rng, name)
                else:
                    await self._users.change(self._sim, self._rng, name, lives=True)


async def collect_garbage(sim: Simulation) -> None:
    rng = random.Random(f"{sim.seed}/garbage")
    while True:
        await anyio.sleep(rng.uniform(0.5, 3.0))
        sim.server.collect_garbage()


async def act_calmly(sim: Simulation) -> None:
    """Create an object that expires, and repair a broken object while the server fails; the operator must handle
    both.
    """
    broken, expiring = (
        ConfigMap.from_dict({"metadata": {"namespace": "default", "name": name}, "data": data})
        for name, data in (
            (BROKEN, {"value": "1", "class": BROKEN}),
            ("expiring", {"value": "1", "class": "low", "ttl": "20"}),
        )
    )
    for process in sim.processes.values():
        process.drift = 0.0  # the operator compares the server's times with this clock
    await anyio.sleep(120.0)  # longer than any delay that was computed with the old clock
    await all_is_kept(sim)
    await sim.client().create(broken)
    await sim.client().create(expiring)
    await anyio.sleep(60.0)
    names = [each["metadata"]["name"] for each in sim.server.objects(ConfigMap)]
    assert expiring.name not in names, "a ConfigMap was not handled in time"
    sim.network.faults.unavailable = 1.0
    await sim.client().patch(broken, raw_patch(MERGE, b'{"data":{"class":"low"}}'))
    await anyio.sleep(2.0)
    sim.network.faults.unavailable = 0.0
    await anyio.sleep(30.0)
    await all_is_kept(sim)
    await change_calmly(sim)


async def change_calmly(sim: Simulation) -> None:
    """Edit all objects while requests or the operator's own code fail, and change classes.

    The operator must handle the changes soon, although the same objects have failed before.
    """
    rng, users = random.Random(f"{sim.seed}/calm"), Users()
    await sim.client().create(Namespace.from_dict({"metadata": {"name": "other"}}))
    places = [("default", f"c{number}") for number in range(6)] + [("other", "far")]
    for namespace, name in places:
        data = {"value": "0", "class": "low", "ttl": "600"}
        metadata = {"namespace": namespace, "name": name}
        with suppress(AlreadyExistsError):
            await sim.client().create(ConfigMap.from_dict({"metadata": metadata, "data": data}))
    for failure in ("refused", "unavailable", "conflicts"):
        setattr(sim.network.faults, failure, 1.0)
        for source in sim.server.objects(ConfigMap):
            await users.edit(sim, rng, source["metadata"]["name"], lives=True)
        await anyio.sleep(2.0)
        setattr(sim.network.faults, failure, 0.0)
        await anyio.sleep(20.0)
        await all_is_kept(sim)
    for trouble in ("raised", "cancelled", "handled"):
        Trouble.now = trouble
        if trouble == "handled":
            await users.revalue(sim, rng)
            await users.stray(sim, rng, "stray")
        else:
            for source in sim.server.objects(ConfigMap):
                await users.edit(sim, rng, source["metadata"]["name"], lives=True)
        await anyio.sleep(2.0)
        Trouble.now = ""
        await anyio.sleep(15.0)
        await all_is_kept(sim)
    for _ in range(3):
        await users.reclass(sim, rng)
        await anyio.sleep(BATCH + 8.0)
        await all_is_kept(sim)
    hinderers = (late_watches, late_answers, missed_changes)
    for some in (*((each,) for each in hinderers), hinderers):
        await overtake(sim, rng, users, some)
    for which in (LEADER, ""):
        await restart(sim, rng, users, which)
    await usurp(sim, rng, users)
    await compete_for_lease(sim, rng)


@asynccontextmanager
async def late_watches(sim: Simulation, rng: random.Random) -> AsyncIterator[None]:
    """Delay watches, so that changes arrive after the answers to writes."""
    seconds = rng.choice([0.05, 0.3])
    with sim.server.watches.delays.during(lambda _: seconds * rng.random()):
        yield


@asynccontextmanager
async def late_answers(sim: Simulation, rng: random.Random) -> AsyncIterator[None]:
    """Delay the answers to writes, so that they arrive after watches have delivered or caches have listed the changes."""
    seconds = rng.choice([0.2, 2.0])

    def late(request: Request) -> float:
        return rng.random() * seconds if is_fenced_write(request) else 0.0

    sim.network.slow.append(late)
    yield
    sim.network.slow.remove(late)


@asynccontextmanager
async def missed_changes(sim: Simulation, rng: random.Random) -> AsyncIterator[None]:
    """Hold back changes after a moment, so that caches must read them from lists; some lists take long."""
    seconds = rng.choice([0.0, 0.3])

    def late(request: Request) -> float:
        is_list = request.method == "GET" and ("limit", "2") in request.query
        return rng.random() * seconds if is_list else 0.0

    async def miss() -> None:
        await anyio.sleep(rng.random() * 0.05)
        await miss_changes(sim, rng.choice([0.05, 0.3]))

    sim.network.slow.append(late)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(miss)
        yield
    sim.network.slow.remove(late)


async def overtake(
    sim: Simulation,
    rng: random.Random,
    users: Users,
    hinderers: Sequence[Callable[..., AbstractAsyncContextManager[None]]],
) -> None:
    """Change objects while the operator writes them and watches, answers or lists are late.

    The operator must handle the last change.
    """
    overtakers = Overtakers(sim, rng, users)
    sim.network.observers.append(overtakers)
    async with AsyncExitStack() as stack:
        for hinder in hinderers:
            await stack.enter_async_context(hinder(sim, rng))
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(overtakers.run)
        for source in sim.server.objects(ConfigMap):
            await users.change(sim, rng, source["metadata"]["name"], lives=True)
        await anyio.sleep(3.0)
        tasks.cancel_scope.cancel()
    sim.network.observers.remove(overtakers)
    await anyio.sleep(17.0)
    await all_is_kept(sim)


async def restart(sim: Simulation, rng: random.Random, users: Users, which: str) -> None:
    """End the leader or all replicas, and change and delete objects while no replica leads."""
    holders = {str(each["spec"].get("holderIdentity")) for each in sim.server.objects(Lease)}
    for name in sorted(sim.processes):
        if which != LEADER or sim.rules.replicas[name].identity in holders:
            rng.choice([sim.kill, sim.stop])(name)
    for source in sim.server.objects(ConfigMap):
        if rng.random() < 0.7:
            await users.change(sim, rng, source["metadata"]["name"], lives=True)
    await users.delete(sim, rng)
    await anyio.sleep(45.0)
    await all_is_kept(sim)


async def usurp(sim: Simulation, rng: random.Random, users: Users) -> None:
    """Take the lease from its holder, as a person who edits the lease does: the leader ends, and another replica leads
    later.
    """
    body = {"spec": {"holderIdentity": PERSON, "leaseDurationSeconds": rng.choice([2, 8])}}
    for lease in sim.server.objects(Lease):
        await sim.client("admin").patch(Lease.from_dict(lease), raw_patch(MERGE, msgspec.json.encode(body)))
    await users.edit(sim, rng, lives=True)
    await anyio.sleep(45.0)
    await all_is_kept(sim)


async def compete_for_lease(sim: Simulation, rng: random.Random) -> None:
    """Let replicas compete for the lease while requests are late or fail, and then stop each of them, as a rollout does."""
    failure = rng.choice(["late", "unavailable"])
    setattr(sim.network.faults, failure, 0.8)
    for name in sorted(sim.processes):
        sim.stop(name)
    await anyio.sleep(rng.uniform(3.0, 20.0))
    setattr(sim.network.faults, failure, 0.0)
    for name in rng.sample(sorted(sim.processes), len(sim.processes)):
        await anyio.sleep(rng.uniform(0.0, 8.0))
        sim.stop(name)
    await anyio.sleep(45.0)
    await all_is_kept(sim)


async def all_is_kept(sim: Simulation) -> None:
    """Check that each ConfigMap has its Secret, that each Secret has its ConfigMap, and that nothing is overdue."""
    sources = {each["metadata"]["name"]: each for each in sim.server.objects(ConfigMap)}
    secrets = {each["metadata"]["name"]: each for each in sim.server.objects(Secret)}
    classes = {each["metadata"]["name"]: each["value"] for each in sim.server.objects(PriorityClass)}
    for name, source in sources.items():
        assert not source["metadata"].get("deletionTimestamp"), f"a ConfigMap cannot be deleted: {name}"
        assert FINALIZER in source["metadata"].get("finalizers", ()), f"a ConfigMap has no finalizer: {name}"
        due = expires(source)
        assert due is None or due > datetime.now(UTC) - timedelta(seconds=5), (
            f"a ConfigMap was not handled in time: {name}"
        )
        assert name in secrets, f"a ConfigMap has no Secret: {name}"
        found = secrets[name]["data"].get("content")
        assert found == content(source, classes), f"a Secret does not have the expected content: {name}"
    for name in secrets:
        assert name in sources, f"a Secret outlived its ConfigMap: {name}"


async def nothing_is_written(sim: Simulation) -> None:
    """Check that the operator writes nothing in a quiet cluster."""
    lines = len(sim.timeline)
    due = [due for each in sim.server.objects(ConfigMap) if (due := expires(each)) is not None]
    await anyio.sleep(QUIET)
    written = [
        line
        for line in sim.timeline[lines:]
        if line.actor.startswith("manager") and " /api/v1/namespaces/default/" in line.text
        and not line.text.startswith("GET") and "/events" not in line.text
    ]  # fmt: skip
    assert due or not written, f"a write in a quiet cluster: {written[0]}"


def keeper(sim: Simulation) -> None:
    """Run two replicas of the operator, with one to three workers; half of the seeds list in pages of two objects."""
    options = simtest.options(
        controller=ControllerDefaults(skip_name_validation=True),
        cache=cache.Options(stream_lists=sim.seed % 2 == 0, page_size=2),
    )
    users, Trouble.now = Users(), ""
    sim.serve(ConfigMap, Secret, PriorityClass)
    sim.actor(collect_garbage)
    sim.manager(functools.partial(setup, workers=1 + sim.seed % 3), options=options)
    sim.action(users.create, times=20)
    sim.action(users.edit, times=12)
    sim.action(users.delete, times=6)
    sim.action(users.replace, times=6)
    sim.action(users.tamper, times=8)
    sim.action(users.stray, times=6)
    sim.action(users.reclass, times=8)
    rivals = Rivals(sim, users)
    sim.on_change(rivals.see)
    sim.actor(rivals.run, "rivals")
    sim.finally_(act_calmly)
    sim.finally_(all_is_kept)
    sim.finally_(nothing_is_written)
