# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import inspect
import pkgutil
import subprocess
import sys

import pytest

import controller_runtime as ctrl
from controller_runtime.machinery import errors
from controller_runtime.machinery.errors import StatusError

NAMES = [
    "AlreadyExistsError",
    "AsReconciler",
    "BadRequestError",
    "CacheError",
    "Client",
    "Condition",
    "Config",
    "ConfigError",
    "ConflictError",
    "ControllerDefaults",
    "ControllerOptions",
    "CustomDefaulter",
    "CustomMutator",
    "CustomValidator",
    "Duration",
    "EventRecorder",
    "ExpiredError",
    "ForbiddenError",
    "GVK",
    "Int32",
    "Int64",
    "InvalidError",
    "LabelSelector",
    "Manager",
    "ManagerError",
    "MethodNotAllowedError",
    "NamespacedName",
    "NoKindMatchError",
    "NotFoundError",
    "Object",
    "ObjectMeta",
    "OperationResult",
    "Options",
    "OwnerReference",
    "Reader",
    "Reconciler",
    "Request",
    "RestError",
    "Result",
    "ServerError",
    "ServerTimeoutError",
    "StatusError",
    "Struct",
    "TerminalError",
    "TooManyRequestsError",
    "TransportError",
    "UnauthorizedError",
    "Unstructured",
    "Writer",
    "add_finalizer",
    "contains_finalizer",
    "controller_of",
    "crd",
    "create_or_patch",
    "create_or_update",
    "has_controller_reference",
    "has_owner_reference",
    "ignore_not_found",
    "load_config",
    "logger_from",
    "merge_from",
    "metadata_only",
    "new_controller_managed_by",
    "new_webhook_managed_by",
    "owner_reference",
    "reference",
    "remove_controller_reference",
    "remove_finalizer",
    "remove_owner_reference",
    "retry_on_conflict",
    "set_controller_reference",
    "set_owner_reference",
    "set_status_condition",
    "setup_signal_handler",
    "strategic_merge_from",
    "unstructured",
    "with_field_owner",
]
PACKAGES = {name for _, name, _ in pkgutil.iter_modules(ctrl.__path__) if not name.startswith("_")}


def loaded_by(program: str) -> set[str]:
    command = [sys.executable, "-c", f"{program}\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_the_facade_has_these_names() -> None:
    public = {name for name in dir(ctrl) if not name.startswith("_")}
    assert sorted(public - PACKAGES) == NAMES
    assert all(getattr(ctrl, name) is not None for name in NAMES)
    with pytest.raises(AttributeError, match=r"'controller_runtime' has no attribute 'Trainer'"):
        _ = ctrl.Trainer  # type: ignore[attr-defined]  # that is the test


def test_every_error_of_an_api_server_is_a_name_of_the_facade() -> None:
    found = [
        each for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, StatusError)
    ]
    assert len(found) == 13
    assert [each for each in found if getattr(ctrl, each.__name__) is not each] == []


def test_every_package_is_an_attribute() -> None:
    assert set(dir(ctrl)) >= PACKAGES
    assert all(getattr(ctrl, name).__name__ == f"controller_runtime.{name}" for name in PACKAGES)


def test_a_room_is_there_whatever_was_loaded_before() -> None:
    assert "controller_runtime.cache" in loaded_by("import controller_runtime as ctrl; ctrl.cache.Options()")


def test_the_name_alone_loads_nothing() -> None:
    loaded = loaded_by("import controller_runtime")
    assert {name for name in loaded if name.startswith("controller_runtime")} == {
        "controller_runtime",
        "controller_runtime._ondemand",
    }
