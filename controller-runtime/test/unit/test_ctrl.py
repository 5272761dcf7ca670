# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import pytest

import controller_runtime as ctrl

NAMES = [
    "Config",
    "Manager",
    "ManagerError",
    "Options",
    "Request",
    "Result",
    "TerminalError",
    "load_config",
    "logger_from",
    "new_controller_managed_by",
    "new_webhook_managed_by",
    "set_controller_reference",
    "setup_signal_handler",
]


def loaded_by(program: str) -> set[str]:
    command = [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_the_facade_has_these_names() -> None:
    assert sorted(ctrl._WHERE) == NAMES
    assert all(getattr(ctrl, name) is not None and name in dir(ctrl) for name in NAMES)
    with pytest.raises(AttributeError, match=r"'controller_runtime' has no attribute 'Trainer'"):
        _ = ctrl.Trainer


def test_a_room_is_there_whatever_was_loaded_before() -> None:
    assert "controller_runtime.cache" in loaded_by("import controller_runtime as ctrl; ctrl.cache.Options()")


def test_the_name_alone_loads_nothing() -> None:
    loaded = loaded_by("import controller_runtime")
    assert {name for name in loaded if name.startswith("controller_runtime")} == {"controller_runtime"}
