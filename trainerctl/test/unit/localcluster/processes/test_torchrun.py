# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The stand-in for torchrun."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainerctl.localcluster.processes import torchrun

PET = {
    "PET_NNODES": "3",
    "PET_NPROC_PER_NODE": "2",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "a",
    "PET_MASTER_PORT": "1",
}


def test_the_variables_of_pet_are_those_of_torchrun() -> None:
    options, command = torchrun.parse(["x.py", "--lr", "1"], PET)
    assert command == [sys.executable, "-u", "x.py", "--lr", "1"]
    first, second = torchrun.environments(options)
    assert first["RANK"] == "2"
    assert second["RANK"] == "3"
    assert (second["LOCAL_RANK"], second["WORLD_SIZE"], second["LOCAL_WORLD_SIZE"]) == ("1", "6", "2")
    assert (second["MASTER_ADDR"], second["MASTER_PORT"]) == ("a", "1")


def test_an_endpoint_is_the_address_of_the_first_process() -> None:
    options, _ = torchrun.parse(["--rdzv_endpoint=a:2", "--max-restarts", "3", "x.py"], {})
    (only,) = torchrun.environments(options)
    assert (only["MASTER_ADDR"], only["MASTER_PORT"], only["WORLD_SIZE"]) == ("a", "2", "1")


@pytest.mark.parametrize("argv", [[], ["--help"], ["--nnodes"], ["--version"]])
def test_a_missing_script_is_reported(argv: list[str]) -> None:
    with pytest.raises(SystemExit):
        torchrun.parse(argv, {})


def test_flags_win_over_variables() -> None:
    options, command = torchrun.parse(["--nproc_per_node=1", "--node-rank", "0", "-m", "mod"], PET)
    assert command == [sys.executable, "-u", "-m", "mod"]
    assert [each["RANK"] for each in torchrun.environments(options)] == ["0"]


@pytest.mark.parametrize(
    ("code", "want"),
    [("import sys; sys.exit(0)", 0), ("import os; os.environ['RANK'] == '1' and os._exit(5)", 5)],
)
def test_the_code_of_a_failed_process_is_returned(tmp_path: Path, code: str, want: int) -> None:
    script = tmp_path / "x.py"
    script.write_text(code)
    argv = [sys.executable, torchrun.__file__, "--nproc-per-node=2", str(script)]
    assert subprocess.run(argv, capture_output=True, check=False).returncode == want
