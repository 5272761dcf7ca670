# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Assumptions about the library that reads kubeconfigs, checked against the installed release."""

import json
import subprocess
import sys

import pytest

from controller_runtime.rest import kubeconfig_import

_PROBE = """
import asyncio, json, os, sys
async def session(openid):
    async with openid("id", "secret", "https://issuer.test")._client_session() as made:
        return made
from controller_runtime.rest import kubeconfig_import
modules = kubeconfig_import.modules()
ours = [name for name in sys.modules if name.startswith("kubernetes_asyncio")]
loaded = sum(1 for name in list(vars(modules.kube_config)) if name.startswith("V1"))
before = len(sys.modules)
early = "aiohttp" in sys.modules
late = isinstance(asyncio.run(session(modules.kube_config.OpenIDRequestor)), __import__("aiohttp").ClientSession)
reader = modules.kube_config.yaml.safe_load.__module__
import kubernetes_asyncio.client
print(json.dumps({
    "reader": reader, "shared": __import__("yaml").safe_load is modules.kube_config.yaml.safe_load,
    "left": ours, "models": loaded, "count": before,
    "real": hasattr(kubernetes_asyncio.client, "V1Pod"),
    "early": early, "late": late,
    "same": kubeconfig_import.modules() is modules,
}))
"""


@pytest.mark.real_time
def test_the_generated_modules_are_not_loaded_and_the_real_library_can_be() -> None:
    answer = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
    seen = json.loads(answer.stdout)
    assert seen["left"] == []
    assert seen["models"] == 0
    assert seen["count"] < 700, "the import loaded the 1,260 generated modules, or as many others"
    assert seen["real"]
    assert seen["same"]
    assert (seen["early"], seen["late"]) == (False, True)
    assert (seen["reader"], seen["shared"]) == (kubeconfig_import.__name__, False)


@pytest.mark.parametrize(
    ("module", "names"),
    [("kube_config", ["KubeConfigMerger", "ConfigNode"]), ("config_exception", ["ConfigException"])],
)
def test_the_names_we_use_are_there(module: str, names: list[str]) -> None:
    assert not set(names) - set(vars(getattr(kubeconfig_import.modules(), module)))
