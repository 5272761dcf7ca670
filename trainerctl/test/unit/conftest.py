# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Every async unit test runs on a loop whose clock is virtual, unless it is marked ``real_time``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ctrl_testkit.unit_tests import *  # noqa: F403 fixtures and hooks

import trainerctl


@pytest.fixture
def tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command line with the option ``-f`` for a file with the given documents.

    It returns the exit code and what was written to both streams, with ``in.yaml`` instead of the path of the file.
    """
    file = tmp_path / "in.yaml"

    def run(line: str, *documents: str | dict[str, Any]) -> tuple[int, str, str]:
        texts = (each if isinstance(each, str) else yaml.safe_dump(each) for each in documents)
        file.write_text("---\n".join(texts))
        code = trainerctl.main([*line.split(), "-f", str(file)])
        out, err = (text.replace(str(file), "in.yaml") for text in capsys.readouterr())
        return code, out, err

    return run
