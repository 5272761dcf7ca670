# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from controller_runtime.apis.authentication.v1 import TokenReview
from controller_runtime.apis.authorization.v1 import SubjectAccessReview
from controller_runtime.log import captured as capture_logs
from controller_runtime.metrics import ReviewError, with_authentication_and_authorization
from controller_runtime.serving import Handler, HTTPRequest, HTTPResponse


class Judge:
    """An API server with known tokens and users with read access; it records its requests."""

    def __init__(self) -> None:
        self.users = {"good": "scraper", "nosy": "stranger"}
        self.attributes: dict[str, Any] = {"uid": "u1", "groups": ["g"], "extra": {"k": ["v"]}}
        self.allowed = {"scraper"}
        self.denied = False
        self.fails: dict[type[Any], Callable[[], Any]] = {}
        self.asked: list[Any] = []

    async def create(self, review: Any, /) -> Any:
        self.asked.append(review)
        if (fail := self.fails.get(type(review))) is not None:
            await fail()
        if isinstance(review, TokenReview):
            name = self.users.get(review.spec.token or "")
            user = {"username": name, **self.attributes}
            status: dict[str, Any] = (
                {"authenticated": True, "user": user} if name else {"error": "invalid bearer token"}
            )
        else:
            status = {"allowed": review.spec.user in self.allowed, "denied": self.denied}
        return type(review).from_dict({**review.to_dict(), "status": status})

    def count(self, kind: type[Any]) -> int:
        return sum(isinstance(review, kind) for review in self.asked)


async def metrics(_request: HTTPRequest) -> HTTPResponse:
    return HTTPResponse(body=b"up 1\n")


@pytest.fixture
def judge() -> Judge:
    return Judge()


@pytest.fixture
def guarded(judge: Judge) -> Handler:
    return with_authentication_and_authorization(judge)(metrics)


async def ask(
    guarded: Handler, authorization: str = "Bearer good", path: str = "/metrics", method: str = "GET"
) -> tuple[int, str]:
    headers = {"Authorization": authorization} if authorization else {}
    answer = await guarded(HTTPRequest(method=method, path=path, headers=headers))
    return answer.status, answer.body.decode()


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", "Basic Z29vZA==", "good", "Bearer g\udcffd"]
)
async def test_without_a_token_nobody_is_asked(judge: Judge, guarded: Handler, authorization: str) -> None:
    assert await ask(guarded, authorization) == (401, "Unauthorized\n")
    assert judge.asked == []


async def test_a_token_that_nobody_knows_is_refused(judge: Judge, guarded: Handler) -> None:
    assert await ask(guarded, "Bearer forged") == (401, "Unauthorized\n")
    assert judge.count(SubjectAccessReview) == 0


async def test_who_may_read_reads_and_the_server_was_asked_for_verb_path_and_all_of_the_user(
    judge: Judge, guarded: Handler
) -> None:
    assert await ask(guarded, "bearer  good") == (200, "up 1\n")
    review = judge.asked[-1]
    assert review.spec.to_dict() == {
        "user": "scraper",
        "uid": "u1",
        "groups": ["g"],
        "extra": {"k": ["v"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


async def test_who_may_not_read_is_told_their_name(guarded: Handler) -> None:
    assert await ask(guarded, "Bearer nosy") == (403, "Authorization denied for user stranger\n")


async def test_an_explicit_denial_outweighs_a_permission(judge: Judge, guarded: Handler) -> None:
    judge.denied = True
    assert (await ask(guarded))[0] == 403


async def refuse() -> None:
    raise ReviewError("the role does not grant it")


@pytest.mark.parametrize("fail", [refuse, anyio.sleep_forever])
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (TokenReview, "Authentication failed\n"),
        (SubjectAccessReview, "Authorization for user scraper failed\n"),
    ],
)
async def test_when_nobody_can_tell_it_stays_closed_and_the_next_one_asks_again(
    judge: Judge, guarded: Handler, kind: type[Any], text: str, fail: Callable[[], Any]
) -> None:
    judge.fails[kind] = fail
    assert await ask(guarded) == (500, text)
    assert anyio.current_time() - 1000 == (0 if fail is refuse else 10)
    judge.fails.clear()
    assert (await ask(guarded))[0] == 200


async def test_answers_are_believed_for_a_minute(judge: Judge, guarded: Handler) -> None:
    for _ in range(3):
        assert (await ask(guarded))[0] == 200
        await anyio.sleep(19)
    assert (judge.count(TokenReview), judge.count(SubjectAccessReview)) == (1, 1)
    judge.allowed.clear()
    await anyio.sleep(4)
    assert (await ask(guarded))[0] == 403
    del judge.users["good"]
    await anyio.sleep(61)
    assert (await ask(guarded))[0] == 401


async def test_a_denial_is_believed_for_half_a_minute(judge: Judge, guarded: Handler) -> None:
    assert (await ask(guarded, "Bearer nosy"))[0] == 403
    judge.allowed.add("stranger")
    await anyio.sleep(29)
    assert (await ask(guarded, "Bearer nosy"))[0] == 403
    await anyio.sleep(2)
    assert (await ask(guarded, "Bearer nosy"))[0] == 200


@pytest.mark.parametrize("other", [{"path": "/debug"}, {"method": "POST"}], ids=["path", "verb"])
async def test_a_permission_holds_for_its_path_and_verb_only(
    judge: Judge, guarded: Handler, other: dict[str, str]
) -> None:
    assert (await ask(guarded))[0] == 200
    judge.allowed.clear()
    assert (await ask(guarded, **other))[0] == 403


@pytest.mark.parametrize(
    "other", [{"uid": "u2"}, {"groups": []}, {"extra": {}}], ids=["uid", "groups", "extra"]
)
async def test_a_permission_holds_for_no_other_user_with_that_name(
    judge: Judge, guarded: Handler, other: dict[str, Any]
) -> None:
    judge.users["also good"] = "scraper"
    assert (await ask(guarded))[0] == 200
    judge.allowed.clear()
    judge.attributes |= other
    assert (await ask(guarded, "Bearer also good"))[0] == 403


async def test_made_up_tokens_do_not_fill_the_memory_and_no_token_is_kept(judge: Judge) -> None:
    guard: Any = with_authentication_and_authorization(judge)
    guarded = guard(metrics)
    for number in range(1024 + 5):
        await ask(guarded, f"Bearer made-up-{number}")
    answers = guard._users
    assert len(answers) == 1024
    assert b"made-up" not in b"".join(answers)


async def test_made_up_tokens_are_asked_about_a_few_at_a_time(judge: Judge, guarded: Handler) -> None:
    at_once = most = 0

    async def slow() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await anyio.sleep(0.1)
        at_once -= 1

    judge.fails[TokenReview] = slow
    answers: list[int] = []

    async def scrape(number: int) -> None:
        answers.append((await ask(guarded, f"Bearer made-up-{number}"))[0])

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(scrape, number)
    assert answers == [401] * 100
    assert most == 4


async def test_scrapes_that_fail_write_few_lines(judge: Judge, guarded: Handler) -> None:
    async def fail() -> None:
        raise ReviewError("no answer")

    judge.fails[TokenReview] = fail
    with capture_logs() as lines:
        for number in range(200):
            assert (await ask(guarded, f"Bearer made-up-{number}"))[0] == 500
    assert 0 < len(lines) <= 25
