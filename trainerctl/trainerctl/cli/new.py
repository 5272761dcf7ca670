# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""``trainerctl new``: writes a TrainJob from flags, or from the answers to a few questions, and validates it."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from controller_runtime.machinery import JSON
from pkg import shipped

from trainerctl.cli import flagtypes, streams
from trainerctl.cli.terminal import Console
from trainerctl.offline.inputfiles import InputError, InputObject, load
from trainerctl.offline.stored import schemas
from trainerctl.offline.verdict import Validator

API_VERSION: Final = "trainer.kubeflow.org/v1alpha1"
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_RESOURCES: Final = (("cpu", "cpu"), ("memory", "memory"), ("gpus", "nvidia.com/gpu"))

Ask = Callable[[str], str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The TrainJob that the user wants; an empty value leaves a field to the runtime."""

    name: str
    namespace: str | None = None
    runtime: str = "torch-distributed"
    kind: str = "ClusterTrainingRuntime"
    image: str | None = None
    command: list[str] = field(default_factory=list)
    nodes: int | None = None
    cpu: str | None = None
    memory: str | None = None
    gpus: int | None = None
    env: list[str] = field(default_factory=list)
    queue: str | None = None
    suspend: bool = False


async def new_command(arguments: argparse.Namespace, out: Console, err: Console) -> int:
    """Print the objects; return 1 if an API server would refuse one, which is printed nevertheless.

    Raises:
        InputError: the name is missing and standard input is not a terminal, or a runtime cannot be read.
    """
    names = [each.name for each in dataclasses.fields(Wanted)]
    given = {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
    if given["name"] is None:
        if sys.stdin is None or not (sys.stdin.isatty() and err.is_terminal):
            raise InputError("the name of the TrainJob is missing, and standard input is not a terminal")
        given |= ask(lambda question: _asked(err, question))
    wanted = Wanted(**given)
    objects = list(manifests(wanted, with_runtime=arguments.with_runtime))
    if arguments.output == "json" and len(objects) > 1:
        out.write_json({"apiVersion": "v1", "kind": "List", "items": objects})
    else:
        for number, each in enumerate(objects):
            if number:
                out.file.write("---\n")
            out.write(arguments.output, each)
    streams.flush()
    return await _judge(objects, arguments, err)


def ask(answer: Ask) -> dict[str, JSON]:
    """Return the answers to the questions; an empty answer leaves a field to the runtime."""
    found: dict[str, JSON] = {"name": _valid(answer, "Name of the TrainJob: ", flagtypes.name)}
    found["runtime"] = (
        answer(f"Runtime ({', '.join(runtimes())}) [torch-distributed]: ") or "torch-distributed"
    )
    found["image"] = answer("Image [the runtime's]: ") or None
    found["command"] = _valid(answer, "Command [the runtime's]: ", _split)
    found["nodes"] = _valid(
        answer, "Number of nodes [the runtime's]: ", _optional(flagtypes.integer(1, 1 << 20))
    )
    found["gpus"] = _valid(
        answer, "GPUs per node [the runtime's]: ", _optional(flagtypes.integer(0, 1 << 10))
    )
    return found


def manifests(wanted: Wanted, *, with_runtime: bool) -> Iterator[dict[str, JSON]]:
    """Yield the TrainJob, after a TrainingRuntime of its own if that is wanted.

    Raises:
        InputError: the runtime to copy is not a shipped one.
    """
    runtime, kind = wanted.runtime, wanted.kind
    metadata: dict[str, JSON] = {"name": wanted.name}
    if wanted.namespace:
        metadata["namespace"] = wanted.namespace
    if with_runtime:
        copied = runtimes().get(runtime)
        if copied is None:
            raise InputError(f"{runtime} is not a shipped runtime; those are {', '.join(runtimes())}")
        labels = copied["metadata"].get("labels")
        own = {**metadata, "name": f"{wanted.name}-runtime", **({"labels": labels} if labels else {})}
        yield {"apiVersion": API_VERSION, "kind": "TrainingRuntime", "metadata": own, "spec": copied["spec"]}
        runtime, kind = f"{wanted.name}-runtime", "TrainingRuntime"
    if wanted.queue:
        metadata["labels"] = {_QUEUE: wanted.queue}
    spec: dict[str, JSON] = {
        "runtimeRef": {"apiGroup": API_VERSION.partition("/")[0], "kind": kind, "name": runtime}
    }
    if trainer := _trainer(wanted):
        spec["trainer"] = trainer
    if wanted.suspend:
        spec["suspend"] = True
    yield {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": metadata, "spec": spec}


def runtimes() -> dict[str, dict[str, JSON]]:
    """Return the shipped runtimes by name."""
    found = shipped.manifests("runtimes")
    return {each["metadata"]["name"]: each for each in found if each["kind"] == "ClusterTrainingRuntime"}


def _trainer(wanted: Wanted) -> dict[str, JSON]:
    trainer: dict[str, JSON] = {}
    if wanted.image:
        trainer["image"] = wanted.image
    if wanted.command:
        trainer["command"] = list(wanted.command)
    if wanted.nodes is not None:
        trainer["numNodes"] = wanted.nodes
    amounts: dict[str, JSON] = {
        name: str(amount) for key, name in _RESOURCES if (amount := getattr(wanted, key)) is not None
    }
    if amounts:
        trainer["resourcesPerNode"] = {"requests": amounts, "limits": dict(amounts)}
    if wanted.env:
        pairs = [each.partition("=") for each in wanted.env]
        trainer["env"] = [{"name": name, "value": value} for name, _, value in pairs]
    return trainer


async def _judge(objects: list[dict[str, JSON]], arguments: argparse.Namespace, err: Console) -> int:
    documents = [InputObject(each, "TrainJob", number) for number, each in enumerate(objects, 1)]
    others = await load(arguments.files) if arguments.files else []
    validator = Validator(schemas(), arguments.namespace or "default", arguments.compatibility_version)
    await validator.start([*documents, *others])
    code = 0
    for document in documents:
        verdict = await validator.judge(document)
        if verdict.code:
            code = 1
        if verdict.code or verdict.warnings:
            for line in verdict.lines():
                err.say(line)
    return code


def _asked(err: Console, question: str) -> str:
    err.file.write(question)
    err.file.flush()
    line = sys.stdin.readline()
    if not line:
        raise InputError("the answers ended")
    return line.strip()


def _valid(answer: Ask, question: str, parse: Callable[[str], T]) -> T:
    while True:
        try:
            return parse(answer(question))
        except (argparse.ArgumentTypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            streams.say_error(str(error))


def _split(text: str) -> list[str]:
    return shlex.split(text)


def _optional(parse: Callable[[str], int]) -> Callable[[str], int | None]:
    return lambda text: parse(text) if text else None
