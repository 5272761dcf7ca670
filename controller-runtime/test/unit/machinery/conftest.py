# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Results recorded from Go's k8s.io/apimachinery v0.34.1 and k8s.io/api v0.34.1."""

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def go() -> dict[str, list[list[Any]]]:
    """Inputs and answers by operation; an answer that starts with an exclamation mark is an error's text."""
    answers: dict[str, list[list[Any]]] = json.loads(
        (Path(__file__).parent / "testdata" / "go.json").read_text()
    )
    return answers
