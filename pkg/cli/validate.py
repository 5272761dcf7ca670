# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl validate``: what an API server with our CRDs and webhooks would answer to new objects, without one.

Schema and rules are the shipped CRDs'; the webhooks' verdict comes from the validators themselves. A TrainJob's runtime
is looked for in the files, then among the shipped ones.
"""

from __future__ import annotations

import argparse

from pkg.cli.terminal import Console
from pkg.offline import inputfiles
from pkg.offline.stored import KINDS, not_served, schemas
from pkg.offline.verdict import Validator


async def validate_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print a verdict for each of Trainer's objects; return 1 if any is a refusal.

    Raises:
        InputError: a file cannot be read, or holds none of Trainer's objects.
    """
    found = await inputfiles.load(arguments.files)
    ours = [document for document in found if document.gvk in KINDS or not_served(document.gvk)]
    for document in found:
        if document not in ours:
            err.say(str(document.error((), "not validated: not a kind of Trainer")))
    if not ours:
        raise inputfiles.InputError(
            "the input contains no TrainJob, TrainingRuntime or ClusterTrainingRuntime"
        )
    validator = Validator(schemas(), arguments.namespace)
    await validator.start(ours)
    verdicts = [await validator.judge(document) for document in ours]
    if arguments.output == "json":
        out.write_json([verdict.to_dict() for verdict in verdicts])
    else:
        for verdict in verdicts:
            for line in verdict.told():
                out.say(line)
    return 1 if any(verdict.code for verdict in verdicts) else 0
