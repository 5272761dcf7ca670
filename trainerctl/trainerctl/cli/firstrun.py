# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The first use of the local cluster: the programs that are built, and a preview that needs none of them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from controller_runtime.envtest import Binaries, Tool
from pkg.apis.trainer.v1alpha1 import TrainJob

from trainerctl.cli.terminal import Console


def announce(tools: Sequence[Tool], err: Console) -> bool:
    """Print which of the programs will be built; return True if there are any.

    Raises:
        ToolError: ``KUBEBUILDER_ASSETS`` names a directory that is missing or contains none of them.
    """
    missing = [tool.name for tool in Binaries().missing(*tools)]
    if missing:
        err.say(f"Programs to build from source, once: {', '.join(missing)}.")
        if len(missing) == len(tools):
            err.say("This takes about five minutes on two cores. Later runs build nothing.")
    return bool(missing)


async def preview(train_job: TrainJob, out: Console) -> None:
    """Print how the TrainJob becomes its objects, and the objects, without a cluster."""
    from trainerctl.cli import explain, render  # here: only a first run needs them
    from trainerctl.offline import inputfiles, rendering, trainjobs
    from trainerctl.offline.trace.trainjob import reviewed

    given = await trainjobs.prepare(inputfiles.read(["-"], stdin=json.dumps(train_job.to_dict()).encode()))
    out.say()
    out.say("Offline, as trainerctl explain and trainerctl render print it:")
    out.say()
    for subject in given.subjects:
        explain.print_text(await reviewed(given, subject), out)
        render.print_tables(await rendering.render(given, subject), out)
    out.file.flush()
