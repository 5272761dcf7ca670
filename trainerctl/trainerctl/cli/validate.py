# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl validate``: predicts the answers of an API server with Trainer's CRDs and webhooks to new objects.

Schemas and rules are those of the shipped CRDs; the webhooks' answers come from their validators. The runtime of a
TrainJob is read from the files, else from the shipped runtimes.
"""

from __future__ import annotations

import argparse

from trainerctl.cli.terminal import Console
from trainerctl.offline import inputfiles
from trainerctl.offline.stored import KINDS, not_served, schemas
from trainerctl.offline.verdict import Validator


async def validate_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print a verdict for each of Trainer's objects; return 1 if any is a refusal.

    Raises:
        InputError: a file cannot be read, or the files contain no object of Trainer's kinds.
    """
    found = await inputfiles.load(arguments.files)
    ours = [document for document in found if document.gvk in KINDS or not_served(document.gvk)]
    for document in found:
        if document not in ours:
            err.say(str(document.error((), "not validated: not a Trainer kind")))
    if not ours:
        raise inputfiles.InputError(
            "the input contains no TrainJob, TrainingRuntime or ClusterTrainingRuntime"
        )
    validator = Validator(schemas(), arguments.namespace, arguments.compatibility_version)
    await validator.start(ours)
    verdicts = [await validator.judge(document) for document in ours]
    if arguments.output == "json":
        out.write_json([verdict.to_dict() for verdict in verdicts])
    else:
        for verdict in verdicts:
            for line in verdict.lines():
                out.say(line)
    return 1 if any(verdict.code for verdict in verdicts) else 0
