# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0

import pytest

from pkg.apis.core.v1 import Pod
from pkg.ctrl import event


def test_an_event_may_name_its_kind_and_cannot_be_changed() -> None:
    pod = Pod()
    for made in (
        event.CreateEvent[Pod](pod, is_in_initial_list=True),
        event.UpdateEvent[Pod](pod, pod),
        event.DeleteEvent[Pod](pod),
        event.GenericEvent[Pod](pod),
    ):
        with pytest.raises(AttributeError):
            made.object = pod  # type: ignore[misc,union-attr]  # what is asserted to fail
