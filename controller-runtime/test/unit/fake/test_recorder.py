# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The recorder for unit tests: what it keeps, and what it refuses."""

import pytest

import controller_runtime as ctrl
from controller_runtime.apis.core.v1 import ConfigMap
from controller_runtime.fake import FakeRecorder


def test_events_are_kept_with_the_state_of_their_object() -> None:
    recorder = FakeRecorder()
    obj = ConfigMap(metadata=ctrl.ObjectMeta(namespace="team", name="one"))
    recorder.event(obj, ctrl.recorder.NORMAL, "Created", "it exists")
    obj.metadata.name = "two"
    recorder.event(obj, ctrl.recorder.WARNING, "Broken", "it does not work")
    assert recorder.reasons == ["Created", "Broken"]
    first, second = recorder.events
    assert (first.object.name, first.type, first.message) == ("one", "Normal", "it exists")
    assert (second.object.name, second.type, second.message) == ("two", "Warning", "it does not work")


def test_a_type_that_the_server_would_refuse_is_refused() -> None:
    with pytest.raises(ValueError, match="event type 'Error' must be Normal or Warning"):
        FakeRecorder().event(ConfigMap(), "Error", "Broken", "")
