# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The modules that the program loads before it does anything: start-up time and memory that every replica pays."""

import json
import subprocess
import sys

import pytest

_PROBE = """
import json, sys
from pkg.app import main
main(["--version"])
from controller_runtime import log
log.configure()
log.logger_from("start").info("Starting")
from controller_runtime.rest import kubeconfig_import
kubeconfig_import.modules()
from pkg.apis.scheme import default_scheme
from pkg.config import config
config.load(None)
assert all(kind.from_dict({"metadata": {"name": "a"}}).to_json() for kind in default_scheme())
classes = {each for module in [*sys.modules.values()] for each in [*vars(module).values()] if isinstance(each, type)}
ours = [each for each in classes if str(each.__module__).partition(".")[0] in ("pkg", "controller_runtime")]
print(json.dumps([each.__qualname__ for each in ours if "__dataclass_fields__" in vars(each)]))
print(json.dumps(sorted(sys.modules)))
"""
_MOST = 430 if sys.version_info < (3, 12) else 433
"""Modules of the library, its dependencies and Python; the manager's own grow with its features. Later Pythons split some of theirs."""
_MOST_DATACLASSES = 16
"""Options of the library, and records with a constructor of their own. A class takes 0.4 ms of the start; a struct, 0.01."""
_SPARED = (
    "pydantic.",
    "pydantic_core.core_schema",
    "aiohttp",
    "kubernetes_asyncio.client",
    "cryptography",
    "opentelemetry",
    "rich",
    "structlog._config",
    "structlog.dev",
    "pickle",
    "tempfile",
    "shutil",
    "difflib",
    "encodings.idna",
    "prometheus_client.twisted",
    "prometheus_client.exposition",
    "http.server",
    "urllib.request",
    "importlib.metadata",
    "email",
)


@pytest.fixture(scope="module")
def output() -> list[str]:
    answer = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
    return answer.stdout.splitlines()


@pytest.mark.real_time
def test_the_program_loads_no_generated_models_and_no_more_than_it_needs(output: list[str]) -> None:
    loaded = json.loads(output[-1])
    assert "pkg.controller.trainjob_controller" in loaded
    assert [name for name in loaded if name.startswith(_SPARED)] == []
    others = [name for name in loaded if name.partition(".")[0] != "pkg"]
    assert len(others) <= _MOST


@pytest.mark.real_time
def test_records_are_structs(output: list[str]) -> None:
    assert len(json.loads(output[-2])) <= _MOST_DATACLASSES
