# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Importing the library changes nothing in the process but its modules."""

import json
import subprocess
import sys

import pytest

_PROBE = """
import gc, json, signal, sys, threading
before = (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), signal.getsignal(signal.SIGTERM), sys.meta_path[:])
import controller_runtime as ctrl
from controller_runtime import builder, cache, client, controller, leaderelection, lean, manager, rest, webhook
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
