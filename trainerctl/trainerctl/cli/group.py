# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl group``: shows which group the pod grouper would assign to each pod in files, and the causes of each
value.
"""

from __future__ import annotations

import argparse

from controller_runtime.apis.core.v1 import Pod
from pkg import config, podgrouper

from trainerctl.cli import streams
from trainerctl.cli.terminal import Console
from trainerctl.offline import inputfiles
from trainerctl.offline.snapshot import Key, by_key
from trainerctl.offline.trace import madepods
from trainerctl.offline.trace.grouping import GroupTrace, in_referenced_versions, trace, with_rules_of


async def group_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the groups.

    Return 1 if a grouper cannot be loaded, or if a pod gets no group although it should have one.

    If the files contain no pod, the pods are made from the templates of the workloads.

    Raises:
        InputError: a file or the manager's configuration is not valid, or there are no pods and none can be made.
    """
    try:
        cfg = config.load(arguments.config, err.say)
        cfg.pod_grouper.rules = arguments.rules or cfg.pod_grouper.rules
        settings = podgrouper.Settings.of(cfg)
    except config.ConfigurationError as error:
        raise inputfiles.InputError(str(error)) from error
    namespace = arguments.namespace or inputfiles.DEFAULT_NAMESPACE
    objects = madepods.as_stored(by_key(await inputfiles.load(arguments.files, streams.say_note), namespace))
    if not any(key.kind == Pod.gvk for key in objects):
        workloads, objects = objects, madepods.with_pods(objects)
        if not any(key.kind == Pod.gvk for key in objects):
            named = ", ".join(map(str, workloads))
            raise inputfiles.InputError(
                "the input contains no Pod, and trainerctl cannot make the pods of"
                f" {named}; give pods with their owners, or for TrainJobs the output of trainerctl render"
            )
        if silent := ", ".join(map(str, madepods.without_pods(objects))):
            streams.say_note(f"no pods are shown of {silent}: there are none, or trainerctl cannot make them")
    objects = in_referenced_versions(objects)
    pods = [key for key in objects if key.kind == Pod.gvk]
    try:
        settings = with_rules_of(objects, settings)
        found = [await trace(objects, pod, settings) for pod in pods]
    except podgrouper.GrouperLoadError as error:
        streams.say_error(str(error))
        return 1
    if arguments.output == "text":
        for each in found:
            _print(each, out)
    else:
        out.write(arguments.output, {"pods": [each.to_dict() for each in found]})
    refused = [each for each in found if each.refusal]
    for each in refused:
        streams.say_error(f"{_named(each.pod)}: {each.refusal}")
    return 1 if refused else 0


def _print(found: GroupTrace, out: Console) -> None:
    out.say((_named(found.pod), "bold"))
    rows = list(found.rows())
    width = max(len(name) for name, _, _ in rows)
    for name, value, due in rows:
        why = f"{'  ' if value else ''}← {due}" if due else ""
        style = "bold red" if name == "refused" else "cyan"
        out.say("  ", (name.ljust(width), style), "  ", value, (why, "dim"))
    out.say()


def _named(pod: Key) -> str:
    return f"Pod {pod.namespace}/{pod.name}"
