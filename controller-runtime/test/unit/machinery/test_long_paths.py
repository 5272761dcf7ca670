# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""An error cuts the path through an object: a tenant decides how many steps it has, and how long they are."""

from collections.abc import Callable
from typing import Annotated, Any

import pydantic
import pytest

from controller_runtime.machinery import Object, Struct, crd, errors, field, openapi, patch, yaml
from controller_runtime.machinery.crd import Markers

KEY = "k" * 39
STEPS = [KEY] * 200
LONGEST = 350


class Spec(Struct):
    """Maps whose keys are free."""

    numbers: dict[str, Annotated[int, Markers(format="int32")]] | None = None


class Free(Object, group="example.com", version="v1", plural="frees"):
    """A kind with such maps."""

    spec: Spec | None = None


def nested(value: Any) -> Any:
    for step in STEPS:
        value = {step: value}
    return value


def refused(call: Callable[[], object]) -> Exception:
    with pytest.raises(ValueError) as caught:  # its subclasses
        call()
    return caught.value


def undecodable() -> str:
    error = refused(lambda: Free.from_dict({"spec": {"numbers": {KEY * 200: "x"}}}))
    assert isinstance(error, pydantic.ValidationError)
    return ": ".join(errors.first_problem(error))


TEXTS: dict[str, Callable[[], object]] = {
    "a class": undecodable,
    "a field": lambda: field.forbidden(field.Path(*STEPS), "no"),
    "a cause": lambda: field.AggregateError([field.forbidden(field.Path(*STEPS), "no")]).causes,
    "a key": lambda: field.invalid(field.Path("labels").key(KEY * 200), "", "no"),
    "a number": lambda: crd.unreadable_in_go(Free, {"spec": {"numbers": {KEY * 200: 1 << 40}}}),
    "a path": lambda: yaml.render_path(STEPS),
    "YAML": lambda: yaml.YAMLError("no", 1, tuple(STEPS)),
    "a JSON patch": lambda: refused(
        lambda: patch.apply_json_patch(nested(1), [{"op": "test", "path": patch.pointer(*STEPS), "value": 2}])
    ),
    "a step": lambda: refused(
        lambda: patch.apply_json_patch({}, [{"op": "remove", "path": patch.pointer(KEY * 200)}])
    ),
    "no pointer": lambda: refused(lambda: patch.apply_json_patch({}, [{"op": "test", "path": KEY * 200}])),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_a_long_path_is_cut(text: Callable[[], object]) -> None:
    shown = str(text())
    assert KEY in shown
    assert " ..." in shown
    assert len(shown) <= LONGEST


MERGES = {
    "an item": ({"containers": [{"name": "a"}]}, {"containers": [nested(1)]}, " does not contain declared merge key: name"),
    "a directive": ({"affinity": {"a": 1}}, {"affinity": {"$patch": "x", **nested(1)}}, "unknown patch type: x in map: "),
    "its name": ({"affinity": {"a": 1}}, {"affinity": {"$patch": KEY * 200}}, "unknown patch type: "),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "words"), MERGES.values(), ids=list(MERGES))
def test_a_merge_cuts_the_values_that_it_shows(old: Any, new: Any, words: str) -> None:
    shown = str(
        refused(lambda: patch.strategic_merge_patch(old, new, openapi.merge_schema("core.v1.PodSpec")))
    )
    assert words in shown
    assert " ..." in shown
    assert len(shown) <= 1500


def test_a_path_of_usual_length_is_whole() -> None:
    path = field.Path("spec", "runtimePatches").index(63).child("trainingRuntimeSpec", "template", "spec")
    path = path.child("replicatedJobs").index(99).child("template", "spec", "template", "spec")
    path = path.child("initContainers").index(63).child("securityContext", "seLinuxOptions", "level")
    assert str(field.forbidden(path, "no")) == f"{path}: Forbidden: no"
