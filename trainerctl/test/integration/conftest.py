# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of integration tests: an API server that serves Trainer's kinds."""

import anyio
import pytest
from controller_runtime.envtest import Binaries, Environment

from trainerctl.localcluster import manifests
from trainerctl.localcluster.tools import JOBSET


@pytest.fixture(scope="session")
def trainer_control_plane(control_plane: Environment) -> Environment:
    """Return the API server of the run, with the CRDs of JobSet and Trainer."""

    async def install() -> None:
        binaries = await Binaries().locate(JOBSET)
        await control_plane.install_crds(*manifests.crds(binaries[JOBSET.name]))

    anyio.run(install)
    return control_plane
