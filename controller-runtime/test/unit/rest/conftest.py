# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs for tests."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from ctrl_testkit.small import WriteKubeconfig as Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str = "config", **user: Any) -> Path:
        cluster = {"server": "https://cluster.test:8001/", **user.pop("cluster", {})}
        data = {
            "current-context": f"ctx-{name}",
            "contexts": [
                {"name": f"ctx-{name}", "context": {"cluster": "c", "user": "u", "namespace": f"ns-{name}"}},
                {"name": "lost", "context": {"cluster": "nowhere", "user": "u"}},
            ],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
        path = tmp_path / name
        path.write_text(yaml.safe_dump(data))
        return path

    return write
