# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import pytest

from pkg import ctrl

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
    with pytest.raises(AttributeError, match=r"'pkg\.ctrl' has no attribute 'Trainer'"):
        _ = ctrl.Trainer


def test_a_room_is_there_whatever_was_loaded_before() -> None:
    assert "pkg.ctrl.cache" in loaded_by("from pkg import ctrl; ctrl.cache.Options()")


def test_the_whole_of_it_needs_neither_trainer_nor_scheduler_code() -> None:
    loaded = loaded_by(f"from pkg import ctrl\nfor name in {NAMES}: getattr(ctrl, name)")
    ours = {name for name in loaded if name.startswith("pkg.") and not name.startswith("pkg.ctrl")}
    strangers = {name for name in ours if name.split(".")[1] != "apis"}
    assert strangers == set()
    assert not {
        name for name in ours if name.startswith(("pkg.apis.trainer", "pkg.apis.config", "pkg.apis.jobset"))
    }


def test_the_name_alone_loads_nothing() -> None:
    assert {name for name in loaded_by("import pkg.ctrl") if name.startswith("pkg.")} == {"pkg.ctrl"}
