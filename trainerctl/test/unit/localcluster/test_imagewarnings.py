# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The warnings about images that cannot run as local processes."""

from pathlib import Path
from typing import Any

import cel
import pytest

from trainerctl.localcluster import imagewarnings

KNOWN = ["my.reg/a-b/train=/venv/bin", "other:2=/venv/bin"]


def warnings(images: list[str], trainer: dict[str, Any] | None) -> list[str]:
    policy, binding = imagewarnings.objects(images, Path("/here/bin"))
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Warn"]}
    given = {"object": {"spec": {} if trainer is None else {"trainer": trainer}}}
    found = []
    for rule in policy["spec"]["validations"]:
        if not cel.evaluate(rule["expression"], given):
            shown = rule.get("messageExpression")
            found.append(cel.evaluate(shown, given) if shown else rule["message"])
    return found


@pytest.mark.parametrize(
    "image", ["my.reg/a-b/train", "my.reg/a-b/train:3", "my.reg/a-b/train@sha256:1", "other:2"]
)
def test_an_image_whose_programs_are_known_needs_no_warning(image: str) -> None:
    assert warnings(KNOWN, {"image": image, "command": ["python"]}) == []


@pytest.mark.parametrize("images", [KNOWN, []])
@pytest.mark.parametrize("trainer", [None, {}, {"command": ["python"]}])
def test_the_image_of_the_runtime_needs_no_warning(images: list[str], trainer: dict[str, Any] | None) -> None:
    assert warnings(images, trainer) == []


@pytest.mark.parametrize("images", [KNOWN, []])
@pytest.mark.parametrize("image", ["my.reg/aXb/train", "x/my.reg/a-b/train", "other:3", "busybox"])
def test_another_image_runs_with_the_programs_of_this_python(images: list[str], image: str) -> None:
    (warning,) = warnings(images, {"image": image, "command": ["python"]})
    assert warning == (
        f"the image {image} is not pulled: its command runs with the programs in /here/bin; for others, use cluster up"
        f" --image {image}=FOLDER"
    )


def test_the_own_program_of_an_image_cannot_run() -> None:
    (warning,) = warnings(KNOWN, {"image": "other:2"})
    assert warning.startswith("the own program of an image cannot run")
