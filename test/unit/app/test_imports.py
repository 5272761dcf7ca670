# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The program starts without large packages that it rarely uses, or that its image does not have."""

import json
import subprocess
import sys

import pytest

_PROBE = """
import json, sys
from pkg.app import main
main(["--version"])
import controller_runtime.rest.kubeconfig
from pkg.config import config
config.load(None)
print(json.dumps(sorted(sys.modules)))
"""
_SPARED = (
    "aiohttp",
    "kubernetes_asyncio",
    "cryptography",
    "opentelemetry",
    *(f"controller_runtime.apis.core.{name}" for name in ("namespaces", "nodes", "pods", "services")),
    "controller_runtime.apis.batch.jobs",
    "controller_runtime.apis.authentication.tokens",
)


@pytest.mark.real_time
def test_the_program_loads_no_generated_models_and_no_package_that_it_rarely_needs() -> None:
    answer = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
    loaded = json.loads(answer.stdout.splitlines()[-1])
    assert "pkg.controller.trainjob_controller" in loaded
    assert [name for name in loaded if name.startswith(_SPARED)] == []
