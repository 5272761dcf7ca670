# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Importing the library changes nothing in the process, except that its modules are loaded."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PROBE = """
import gc, json, signal, sys, threading
before = (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), signal.getsignal(signal.SIGTERM), sys.meta_path[:])
import controller_runtime as ctrl
from controller_runtime import builder, cache, client, controller, leaderelection, manager, rest, webhook
from controller_runtime.controller import controllerutil
after = (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), signal.getsignal(signal.SIGTERM), sys.meta_path[:])
print(json.dumps({
    "same": before == after,
    "absent": [name for name, module in sys.modules.items() if module is None],
    "kubernetes": [name for name in sys.modules if name.startswith("kubernetes_asyncio")],
    "threads": threading.active_count(),
}))
"""


@pytest.mark.real_time
def test_importing_the_library_has_no_other_effect() -> None:
    answer = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
    seen = json.loads(answer.stdout)
    assert seen == {"same": True, "absent": [], "kubernetes": [], "threads": 1}


_WITHOUT_THE_EXTRA = """
import sys
sys.modules["kubernetes_asyncio"] = None
import controller_runtime.interop
import controller_runtime.interop.kubernetes_asyncio
"""


@pytest.mark.real_time
def test_the_extra_of_a_module_is_named_if_it_is_missing() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", _WITHOUT_THE_EXTRA], capture_output=True, text=True, check=False
    )
    last = answer.stderr.strip().splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: ")
    assert last.endswith("; install controller-runtime[kubernetes-asyncio]")


def test_neither_the_library_nor_its_scaffold_require_kubernetes_asyncio() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [*project["dependencies"], (ROOT / "requirements" / "runtime.lock").read_text()]
    templates = [each.read_text() for each in (ROOT / "controller_runtime/tools/templates").rglob("*.tmpl")]
    assert templates
    assert not [each for each in [*required, *templates] if re.search("kubernetes.asyncio", each)]
    assert "kubernetes-asyncio" in project["optional-dependencies"]


_FOR_OPERATORS = """
import json, sys
import controller_runtime as ctrl
for name in dir(ctrl):
    if name not in {"envtest", "simtest", "testing", "tools"}:
        getattr(ctrl, name)
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.real_time
def test_names_for_operators_load_no_pods_no_log_and_no_kubernetes_client() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", _FOR_OPERATORS], capture_output=True, text=True, check=True
    )
    loaded = {
        name.partition(".")[0] if "controller" not in name else name for name in json.loads(answer.stdout)
    }
    assert "controller_runtime.manager.manager" in loaded
    assert loaded.isdisjoint(
        {"controller_runtime.apis.core.v1", "structlog", "rich", "kubernetes_asyncio", "aiohttp", "pytest"}
    )
