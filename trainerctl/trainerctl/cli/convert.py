# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl convert``: rewrites TrainJobs and runtimes of one API generation for the other generation."""

from __future__ import annotations

import argparse

from trainerctl.cli import streams
from trainerctl.cli.terminal import Console
from trainerctl.offline import convert, inputfiles, stored


async def convert_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the rewritten objects. Print an error for each field that is lost, and return 1 if there is one.

    Raises:
        InputError: a file cannot be read, or an object is not valid.
    """
    found = await inputfiles.load(arguments.files, streams.say_note)
    for document in found:
        if (unserved := stored.not_served(document.gvk)) is not None:
            raise document.error((), f"{unserved}; {stored.served_instead(document.gvk)}")
    converted = [(document, convert.convert(document, arguments.to)) for document in found]
    lost = [document.error(loss.path, loss.problem) for document, each in converted for loss in each.losses]
    for error in lost:
        streams.say_error(str(error))
    if arguments.output == "json":
        out.write_json({"apiVersion": "v1", "kind": "List", "items": [each.data for _, each in converted]})
    else:
        for _, each in converted:
            out.file.write("---\n")
            out.write_yaml(each.data)
    return 1 if lost else 0
