# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl migrate``: strings in numProcPerNode become numbers and annotations, and nothing else is written."""

import io
from typing import Any, cast

import pytest
from controller_runtime.client import LiveClient, interceptor
from controller_runtime.fake import FakeClient
from controller_runtime.machinery.errors import ConflictError, ForbiddenError
from pkg.apis.trainer.v1alpha1 import Trainer, TrainJob
from pkg.constants.trainer import NUM_PROC_PER_NODE_ANNOTATION
from testkit.builders import make_train_job

from trainerctl.cli import live, migrate
from trainerctl.cli.terminal import Console


def job(name: str, value: Any, namespace: str = "ns") -> TrainJob:
    return make_train_job(namespace, name, trainer=Trainer(num_proc_per_node=value))


async def run(client: Any, namespace: str = "ns", **options: bool) -> tuple[int, list[str]]:
    out = io.StringIO()
    cluster = live.Connection(cast("LiveClient", client), namespace, cast("live.ServerClock", None))
    code = await migrate.rewrite_all(cluster, namespace, Console(file=out, width=200), **options)
    return code, out.getvalue().splitlines()


async def values(client: FakeClient) -> dict[str, tuple[Any, str | None]]:
    return {
        each.name: (
            each.spec.trainer.num_proc_per_node if each.spec.trainer else None,
            each.annotations.get(NUM_PROC_PER_NODE_ANNOTATION),
        )
        for each in await client.list(TrainJob)
    }


async def test_words_move_to_the_annotation_and_numbers_become_numbers() -> None:
    client = FakeClient(job("word", "auto"), job("text", "4"), job("number", 8), make_train_job("ns", "none"))
    code, said = await run(client)
    assert await values(client) == {
        "word": (None, "auto"),
        "text": (4, None),
        "number": (8, None),
        "none": (None, None),
    }
    assert [(call.verb, call.key.name) for call in client.writes] == [("patch", "text"), ("patch", "word")]
    assert (code, said) == (
        0,
        [
            'trainjob ns/text: numProcPerNode "4" is stored as the number 4',
            f'trainjob ns/word: numProcPerNode "auto" is stored in the annotation {NUM_PROC_PER_NODE_ANNOTATION}',
        ],
    )
    assert await run(client) == (0, ["no TrainJob stores numProcPerNode as a string"])


async def test_a_dry_run_stores_nothing_and_another_namespace_is_left_alone() -> None:
    client = FakeClient(job("a", "4"), job("b", "4", "other"))
    code, said = await run(client, dry_run=True)
    assert (code, said) == (0, ['trainjob ns/a: numProcPerNode "4" is stored as the number 4 (dry run)'])
    assert await values(client) == {"a": ("4", None), "b": ("4", None)}
    await run(client)
    assert await values(client) == {"a": (4, None), "b": ("4", None)}


async def test_a_train_job_that_changes_meanwhile_is_read_again() -> None:
    client, conflicts = FakeClient(job("a", "4")), [1, 2]

    async def patch(inner: Any, obj: Any, *arguments: Any, **options: Any) -> Any:
        if conflicts:
            conflicts.pop()
            raise ConflictError("changed", code=409, reason="Conflict")
        return await inner.patch(obj, *arguments, **options)

    writer = interceptor.wrap(client, interceptor.Funcs(patch=patch))
    assert (await run(writer))[0] == 0
    assert await values(client) == {"a": (4, None)}


async def test_a_refusal_is_reported_and_the_others_are_rewritten(capsys: pytest.CaptureFixture[str]) -> None:
    client = FakeClient(job("a", "4"), job("b", "4"), job("c", str(1 << 40)))

    async def patch(inner: Any, obj: Any, *arguments: Any, **options: Any) -> Any:
        if obj.name == "a":
            raise ForbiddenError("a policy refuses it", code=403, reason="Forbidden")
        return await inner.patch(obj, *arguments, **options)

    writer = interceptor.wrap(client, interceptor.Funcs(patch=patch))
    code, said = await run(writer)
    assert (code, len(said)) == (1, 1)
    errors = capsys.readouterr().err
    assert "trainjob ns/a: a policy refuses it" in errors
    assert "trainjob ns/c: " in errors
