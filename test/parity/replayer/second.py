# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Where our answer has to be better than Trainer v2.3's, and how the recorded answers of v2.3 are parsed.

- where upstream panicked, the right objects are accepted too;
- an unknown job or container in ``runtimePatches`` may be refused;
- processes may be counted from the GPUs that the container gets, if the TrainJob's resources name no GPU;
- a TrainJob whose deadline has passed before it has a JobSet fails without one;
- a failed delete of the JobSet after the deadline is an error;
- a TrainJob that is Failed does not become Complete as well, and is never built again;
- the name of a runtime in an event is not a format.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import yaml
from controller_runtime.machinery.meta import format_time, parse_time

from .cases import Case
from .world import NOW

Document = dict[str, Any]

_UNKNOWN: Final = re.compile(
    r"must not have (replicated job that doesn't exist in the runtime job template"
    r"|(initC|c)ontainer that doesn't exist in the runtime job \S+)"
)
_FACTS: Final = {
    "entrypoint.sh": {
        "flags": r'^ *flags="([^"]*?) *"$',
        "mainHost": r'^mainHost="(.*)"$',
        "resources": r"^flux R encode --hosts=\S+ (.*) > ",
    },
    "init.sh": {
        "brokerHosts": r'host *= *"([^"]*)"',
        "default_bind": r'^default_bind = "(.*)"$',
        "default_connect": r'^default_connect = "(.*)"$',
        "fluxroot": r"^fluxroot=(.*)$",
        "hosts": r'^hosts="(.*)"$',
        "mainHost": r"^mainHost=(.*)$",
        "queuePolicy": r'^queue-policy = "(.*)"$',
    },
}
"""For each generated script of Flux, the recorded facts with the patterns that find them in our script."""
_UNREADABLE: Final = "unable to unmarshal the snapshot: "
"""After this, messages contain the text of Go's or our YAML and JSON readers, which is not compared."""
_SINCE_NOW: Final = re.compile(r"<now \+ (\d+) s>")


def raise_expectations(case: Case, want: Document, got: Document) -> None:
    """Change the wanted answer where ours has to be better than upstream's, and replace the placeholders in it."""
    for side in (want, got):
        for obj in side.get("applied") or ():
            _parse_snapshot(obj)
    for obj in got.get("objects") or ():
        _find_facts(obj)
    if case.op == "newObjects" and _UNKNOWN.search(str(got.get("error"))) and _patches(case):
        want.clear()
        want.update(got)
    if _UNREADABLE in str(want.get("error")) and _UNREADABLE in str(got.get("error")):
        want["error"] = want["error"].partition(_UNREADABLE)[0] + got["error"].partition(_UNREADABLE)[2]
        got["error"] = got["error"].partition(_UNREADABLE)[0] + got["error"].partition(_UNREADABLE)[2]
    if case.op.startswith("validate"):
        _allow_refusals(want, got)
    if case.op == "newObjects":
        _expect_gpus(case, want, got)
    if case.op == "reconcile":
        _expect_of_reconcile(case, want, got)
    if case.op == "status" and isinstance(got.get("status"), dict):
        _expect_one_end(case, want["status"])


def _allow_refusals(want: Document, got: Document) -> None:
    """Remove our errors for unknown jobs and containers, which upstream reports only when it builds the objects."""
    errors = got.get("errors") or []
    kept = [error for error in errors if not _UNKNOWN.search(error["detail"])]
    if len(kept) == len(errors):
        return
    got["errors"] = kept
    for side in (want, got):
        side.pop("message", None)
    if not kept:
        got.update(allowed=True, code=200)


def serves(case: Case, got: Document) -> bool:
    """Return True if the objects of a TrainJob on which upstream panicked run on the runtime's number of nodes."""
    objects = {obj["kind"]: obj for obj in got.get("objects") or ()}
    nodes = next(
        obj["spec"]["mlPolicy"].get("numNodes", 1)
        for obj in case.input["objects"]
        if obj["kind"].endswith("TrainingRuntime")
    )
    jobs = objects["JobSet"]["spec"]["replicatedJobs"] if "JobSet" in objects else []
    return {"ConfigMap", "JobSet", "Secret"} <= objects.keys() and any(
        job["template"]["spec"]["parallelism"] == nodes for job in jobs
    )


def _expect_gpus(case: Case, want: Document, got: Document) -> None:
    """Where the TrainJob's resources name no GPU, count those of the runtime's container, which keeps them."""
    trainer = case.input["trainJob"]["spec"].get("trainer") or {}
    gpus, own = _gpus_of_runtime(case), trainer.get("resourcesPerNode")
    if not gpus or own is None or any("gpu" in name for amounts in own.values() for name in amounts):
        return
    for obj in want.get("objects") or ():
        if "hostfile" in (obj.get("data") or {}):
            obj["data"]["hostfile"] = obj["data"]["hostfile"].replace("slots=1\n", f"slots={gpus}\n")
        if "facts" in obj:
            obj["facts"]["entrypoint.sh"]["flags"] += f" -g {gpus}"
            obj["facts"]["entrypoint.sh"]["resources"] += f" --gpu=0-{gpus - 1}"
        for env in _environment(obj):
            match env["name"]:
                case "PET_NPROC_PER_NODE" if "numProcPerNode" not in trainer:
                    env["value"] = "auto"
                case "DMLC_NUM_WORKER":
                    env["value"] = str(int(env["value"]) * gpus)
                case "OMPI_MCA_orte_set_default_slots" if env["value"] == "1":
                    env["value"] = str(gpus)


def _gpus_of_runtime(case: Case) -> int:
    runtimes = (obj for obj in case.input.get("objects") or () if obj["kind"].endswith("TrainingRuntime"))
    jobs = [job for obj in runtimes for job in obj["spec"]["template"]["spec"].get("replicatedJobs", ())]
    containers = (
        each for job in jobs for each in job["template"]["spec"]["template"]["spec"].get("containers") or ()
    )
    return max(
        (_gpus(each.get("resources") or {}) for each in containers if each["name"] == "node"), default=0
    )


def _gpus(resources: Document) -> int:
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return max((math.ceil(float(amount)) for name, amount in amounts.items() if "gpu" in name), default=0)


def _environment(obj: Document) -> Iterator[Document]:
    for job in (obj.get("spec") or {}).get("replicatedJobs") or ():
        for container in job["template"]["spec"]["template"]["spec"].get("containers") or ():
            yield from container.get("env") or ()


def _patches(case: Case) -> bool:
    return bool((case.input["trainJob"].get("spec") or {}).get("runtimePatches"))


def _parse_snapshot(obj: Any) -> None:
    data = obj.get("data") if isinstance(obj, dict) else None
    if isinstance(data, dict) and isinstance(data.get("runtime"), str):
        with suppress(yaml.YAMLError):
            data["runtime"] = yaml.safe_load(data["runtime"])
            data["runtime"] = json.loads(json.dumps(data["runtime"], default=str))  # keys become strings
        if isinstance(data["runtime"], dict):
            data["runtime"].get("metadata", {}).pop("resourceVersion", None)


def _find_facts(obj: Any) -> None:
    data = obj.get("data") if isinstance(obj, dict) else None
    if not isinstance(data, dict) or "entrypoint.sh" not in data:
        return
    obj["facts"] = {
        name: {fact: _found(pattern, data.get(name, "")) for fact, pattern in facts.items()}
        for name, facts in _FACTS.items()
    }
    obj["data"] = dict.fromkeys(data, "<script>")


def _found(pattern: str, text: str) -> str | None:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else None


def _expect_of_reconcile(case: Case, want: Document, got: Document) -> None:
    before = case.input["trainJob"].get("status") or {}
    if any(failure["verb"] == "delete" for failure in case.input.get("clientErrors") or ()):
        want["error"] = got.get("error") or "an error or a requeue"
    if "requeueAt" in want:
        want["requeueAt"] = _SINCE_NOW.sub(_after_now, want["requeueAt"])
    if _true(before, "Failed") and _reason(before) != "TrainingRuntimeNotSupported":
        want["applied"] = []
        if not _true(want["status"], "Failed"):
            want["status"] = before
        _failed(want["status"])["lastTransitionTime"] = _failed(before)["lastTransitionTime"]
        if _reason(before) == "DeadlineExceeded":  # we retry the deletion of its JobSet
            got.pop("deleted", None)
    if _has_passed(case, before) and not any(
        obj["kind"] == "JobSet" for obj in case.input.get("objects") or ()
    ):
        want.update(applied=[], error=None, events=[])
        want.pop("deleted", None)
    want["events"] = [re.sub(r"%!\S\(MISSING\)", "%s", event) for event in want["events"]]
    _expect_one_end(case, want["status"])


def _expect_one_end(case: Case, status: Document) -> None:
    """Remove Complete from the status of a TrainJob that was Failed before, and vice versa."""
    before = case.input["trainJob"].get("status") or {}
    for end, other in (("Failed", "Complete"), ("Complete", "Failed")):
        if _true(before, end) and not _true(before, other) and _true(status, other):
            status["conditions"] = [each for each in status.get("conditions") or () if each["type"] != other]


def _has_passed(case: Case, before: Document) -> bool:
    """Return True if the deadline of a TrainJob that has not ended passed before the case."""
    job = case.input["trainJob"]
    seconds, start = job["spec"].get("activeDeadlineSeconds"), job["metadata"].get("creationTimestamp")
    if not seconds or not start or job["spec"].get("suspend") or _true(before, "Failed"):
        return False
    suspended = next((each for each in before.get("conditions") or () if each["type"] == "Suspended"), None)
    if suspended is not None:
        start = format_time(NOW) if suspended["status"] == "True" else suspended["lastTransitionTime"]
    return parse_time(start) + timedelta(seconds=seconds) < NOW


def _true(status: Document, kind: str) -> bool:
    return any(each["type"] == kind and each["status"] == "True" for each in status.get("conditions") or ())


def _failed(status: Document) -> Document:
    return next(each for each in status["conditions"] if each["type"] == "Failed")


def _reason(status: Document) -> str:
    return str(_failed(status)["reason"])


def _after_now(found: re.Match[str]) -> str:
    return format_time(NOW + timedelta(seconds=int(found[1])))
