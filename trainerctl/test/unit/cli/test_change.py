# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl suspend`` and ``resume``."""

import io
from collections.abc import Callable
from typing import Any

import pytest
from controller_runtime.fake import FakeClient
from testkit.why.world import TrainJobObjects, condition

from trainerctl.cli import change, live, parser
from trainerctl.cli.live import KIND
from trainerctl.cli.terminal import Console

COMMANDS = {"suspend": change.suspend_command, "resume": change.resume_command}


@pytest.mark.parametrize(
    ("command", "suspend", "status", "code", "said", "writes"),
    [
        ("suspend", None, None, 0, "trainjob team-a/llama suspended\n", [True]),
        ("suspend", False, None, 0, "trainjob team-a/llama suspended\n", [True]),
        ("suspend", True, None, 0, "trainjob team-a/llama is already suspended\n", []),
        ("resume", True, None, 0, "trainjob team-a/llama resumed\n", [False]),
        ("resume", None, None, 0, "trainjob team-a/llama is not suspended\n", []),
        ("suspend", None, "Complete", 1, "trainjob team-a/llama is complete and cannot be suspended", []),
        ("resume", True, "Failed", 1, "trainjob team-a/llama has failed and cannot be resumed", []),
    ],
)
async def test_a_train_job_that_has_not_ended_is_suspended_or_resumed(
    command: str,
    suspend: bool | None,
    status: str | None,
    code: int,
    said: str,
    writes: list[bool],
    connected: Callable[[Any], live.Connection],
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = TrainJobObjects().train_job
    job["spec"]["suspend"] = suspend
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpus"}
    if status:
        job["status"]["conditions"] = [condition(status)]
    client = FakeClient(KIND.wrap(job))
    connected(client)
    out = io.StringIO()
    arguments = parser.parse([command, "llama"])
    assert await COMMANDS[command](arguments, Console(file=out, width=200), Console(stderr=True)) == code

    errors = capsys.readouterr().err
    assert said in (errors if code else out.getvalue())
    assert ("is in the Kueue queue gpus" in errors) == (not code)
    assert [call.verb for call in client.writes] == ["patch"] * len(writes)
    stored = (await client.get(KIND, ("team-a", "llama"))).to_dict()
    assert stored["spec"].get("suspend") == (writes[0] if writes else suspend)
