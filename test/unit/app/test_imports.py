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


_TEXTS = """
import json, sys
import pkg.app.program
from controller_runtime.machinery import Struct
found, seen = [Struct], []
while found:
    seen.append(kind := found.pop())
    found += kind.__subclasses__()
texts = [each for each in seen if any(isinstance(text, str) for text in vars(each).get("__annotations__", {}).values())]
print(json.dumps([len(seen), sorted({each.__module__ for each in texts})]))
"""


@pytest.mark.real_time
def test_pydantic_compiles_no_annotations_of_the_structs_of_a_start() -> None:
    answer = subprocess.run([sys.executable, "-c", _TEXTS], capture_output=True, text=True, check=True)
    structs, modules = json.loads(answer.stdout)
    assert structs > 150
    # The first module has the base class of kinds, whose annotations name the class itself.
    assert modules == ["controller_runtime.machinery.object"]


@pytest.mark.real_time
def test_the_program_loads_no_generated_models_and_no_package_that_it_rarely_needs() -> None:
    answer = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
    loaded = json.loads(answer.stdout.splitlines()[-1])
    assert "pkg.controller.trainjob_controller" in loaded
    assert [name for name in loaded if name.startswith(_SPARED)] == []
