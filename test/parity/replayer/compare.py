# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Compares an answer with the recorded one of upstream, and describes the differences.

Where our answer has to be better than upstream's, these rules apply (:mod:`.second` has those of Trainer v2.3):

- where upstream panicked, any refusal or error is accepted;
- applied objects are compared as a set: an apply whose result is known may be omitted;
- a TrainJob that names another manager is left unchanged;
- a runtimeRef of an unregistered kind is stored as the condition Failed, TrainingRuntimeNotSupported;
- an env variable's ``fileKeyRef`` is kept;
- additional warnings about one field are permitted: they refuse nothing, and ``pkg.runtime.remarks`` has tests of its own;
- an event wakes all TrainJobs concerned, also those that share their name with one in another namespace.

Where a single recorded answer pins a fault of upstream, ``agreed.json`` lists the case, the reason, and each difference.
A case of this list must differ exactly as listed.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from . import cases, groupcompare, second, servingcompare
from .cases import Case

Document = dict[str, Any]

STAMPED: Final = "2077-07-07T07:07:07Z"
_WILD: Final = {"<time>": re.escape(STAMPED) + "|<time>", "<random>": r"[\s\S]+", "<pointer>": r"\S+"}
_PLACEHOLDER: Final = re.compile("|".join(map(re.escape, _WILD)))
_OUR_NAMES: Final = (None, "", "trainer.kubeflow.org/trainjob-controller")
_ABSENT: Final = object()
_GROUP: Final = "trainer.kubeflow.org"
_KINDS: Final = ("ClusterTrainingRuntime", "TrainingRuntime")
_NOT_SUPPORTED: Final = {"type": "Failed", "status": "True", "reason": "TrainingRuntimeNotSupported"}


_REMARK: Final = re.compile(r"(spec|metadata)\.[^ :]+: ")
"""Matches warnings about one field, of which upstream has none."""

AGREED: Final[dict[tuple[str, str, str], Document]] = {
    (each["release"], each["op"], each["case"]): each
    for each in json.loads(Path(__file__).with_name("agreed.json").read_text())
}
"""The agreed differences by release (rules of the pod grouper, or profile of the manager), operation and case."""


def differences(case: Case, got: Document) -> list[str]:
    """Return a line for each difference of an answer: path, wanted, got. An empty list means that it is right."""
    found = disagreements(case, got)
    agreed = AGREED.get((release(case), case.op, case.name))
    if agreed is None:
        return found
    wanted = agreed["differences"]
    return [
        *(line for line in found if line not in wanted),
        *(f"no longer so, but agreed: {line}" for line in wanted if line not in found),
    ]


def release(case: Case) -> str:
    """Return the release that gave the answer, as the list of agreed differences names it."""
    if groupcompare.concerns(case):
        return str((case.input.get("config") or {}).get("rules", "v0.13"))
    return case.profile


def disagreements(case: Case, got: Document) -> list[str]:
    """Return the same as :func:`differences`, including the agreed differences."""
    if groupcompare.concerns(case):
        if "panic" in got:
            return [f"it broke: {got['panic']}"]
        return list(_walk(*groupcompare.expectations(case, case.want, got), ""))
    if case.want.get("panic") is not None:
        if case.op == "reconcile" and _names_an_unregistered_kind(case):
            return _unless_stored_as_failed(got)
        right = case.profile != cases.PROFILES[0] and second.serves(case, got)
        return [] if right or _refuses(got) else [_line("", "a refusal or an error", got)]
    if "panic" in got:
        return [f"it broke: {got['panic']}"]
    if servingcompare.concerns(case):
        return list(_walk(*servingcompare.expectations(case, case.want, got), ""))
    if "anyOf" in case.want:
        every = [_compare(case, {**case.want, **want}, got) for want in case.want["anyOf"]]
        return min(every, key=len)
    return _compare(case, case.want, got)


def normalised(got: Document) -> Document:
    """Return an answer in which values that differ between runs are replaced as in the recorded results."""
    text = json.dumps(got).replace(STAMPED, "<time>")
    answer: Document = json.loads(text)
    for obj in answer.get("objects") or ():
        if obj.get("kind") == "Secret" and _is_generated(obj):
            obj["data"] = dict.fromkeys(obj.get("data") or {}, "<random>")
    return answer


def _is_generated(secret: Document) -> bool:
    return secret.get("type") == "kubernetes.io/ssh-auth" or "curve.cert" in (secret.get("data") or {})


def _compare(case: Case, want: Document, got: Document) -> list[str]:
    want = {key: value for key, value in want.items() if key not in ("unordered", "anyOf")}
    want, got = copy.deepcopy(want), normalised(got)
    unordered = case.want.get("unordered") or ()
    if "errors" in unordered:
        want.pop("message", None)
        got.pop("message", None)
    for path in unordered:
        for side in (want, got):
            _sort(side, path.split("."))
    if "applied" in want:
        want["applied"], got["applied"] = _unique(want["applied"]), _unique(got.get("applied") or [])
    if "warnings" in want and got.get("warnings"):
        upstream = want["warnings"] or ()
        got["warnings"] = [
            each for each in got["warnings"] if each in upstream or not _REMARK.match(str(each))
        ]
    _raise_expectations(case, want, got)
    if case.profile != cases.PROFILES[0]:
        second.raise_expectations(case, want, got)
    return list(_walk(want, got, ""))


def _raise_expectations(case: Case, want: Document, got: Document) -> None:
    """Change the wanted answer where ours has to be better than upstream's."""
    train_job = case.input.get("trainJob") or {}
    spec = train_job.get("spec") or {}
    if case.op == "reconcile" and spec.get("managedBy") not in _OUR_NAMES:
        want.update(applied=[], error=None, events=[], status=train_job.get("status") or {})
    if case.op == "reconcile" and "unsupported runtime" in str(want.get("error")):
        if _stored_as_failed(got):
            want.update(got, applied=[])
        else:
            want["status"] = {"conditions": [_NOT_SUPPORTED]}
    rebuilds = [event for event in got.get("events") or () if " JobSetRecreating " in str(event)]
    if case.op == "reconcile" and rebuilds and _holds_suspended_job_set(case):
        # The JobSet is rebuilt: its existing Jobs would not follow the spec that upstream applies.
        want.update(applied=[], events=rebuilds)
        want["status"].pop("jobsStatus", None)
        got["status"].pop("jobsStatus", None)
    references = dict(_file_key_refs(spec))
    if references and "objects" in want:
        _keep_references(want["objects"], references)
    if case.op == "enqueue":
        _allow_namesakes(want, got)


def _holds_suspended_job_set(case: Case) -> bool:
    objects = case.input.get("objects") or ()
    return any(each["kind"] == "JobSet" and each["spec"].get("suspend") for each in objects)


def _names_an_unregistered_kind(case: Case) -> bool:
    reference = ((case.input.get("trainJob") or {}).get("spec") or {}).get("runtimeRef") or {}
    return (reference.get("apiGroup") or _GROUP, reference.get("kind") or _KINDS[0]) not in {
        (_GROUP, kind) for kind in _KINDS
    }


def _stored_as_failed(got: Document) -> bool:
    stored = (got.get("status") or {}).get("conditions") or []
    return any(_NOT_SUPPORTED.items() <= condition.items() for condition in stored)


def _unless_stored_as_failed(got: Document) -> list[str]:
    if "panic" in got:
        return [f"it broke: {got['panic']}"]
    wrong = (
        []
        if _stored_as_failed(got)
        else [_line("status", {"conditions": [_NOT_SUPPORTED]}, got.get("status"))]
    )
    return wrong + ([_line("applied", [], got["applied"])] if got.get("applied") else [])


def _file_key_refs(node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        source = node.get("valueFrom")
        if isinstance(source, dict) and "fileKeyRef" in source:
            yield node.get("name", ""), source
        for held in node.values():
            yield from _file_key_refs(held)
    elif isinstance(node, list):
        for item in node:
            yield from _file_key_refs(item)


def _keep_references(node: Any, references: Document) -> None:
    if isinstance(node, dict):
        if node.get("valueFrom") == {} and node.get("name") in references:
            node["valueFrom"] = references[node["name"]]
        for held in node.values():
            _keep_references(held, references)
    elif isinstance(node, list):
        for item in node:
            _keep_references(item, references)


def _allow_namesakes(want: Document, got: Document) -> None:
    answered = got.get("requests")
    for plugin, wanted in (want.get("requests") or {}).items():
        woken = answered.get(plugin) if isinstance(answered, dict) else None
        names = {request.partition("/")[2] for request in wanted}
        extra = [
            request
            for request in (woken if isinstance(woken, list) else ())
            if request not in wanted and str(request).partition("/")[2] in names
        ]
        want["requests"][plugin] = sorted([*wanted, *extra])


def _refuses(got: Document) -> bool:
    return "panic" not in got and (got.get("allowed") is False or bool(got.get("error")))


def _walk(want: Any, got: Any, path: str) -> Iterator[str]:
    if isinstance(want, dict) and isinstance(got, dict):
        for key in sorted(want.keys() | got.keys()):
            yield from _walk(want.get(key, _ABSENT), got.get(key, _ABSENT), f"{path}.{key}" if path else key)
    elif isinstance(want, list) and isinstance(got, list):
        for index in range(max(len(want), len(got))):
            yield from _walk(_at(want, index), _at(got, index), f"{path}[{index}]")
    elif isinstance(want, str) and isinstance(got, str) and _PLACEHOLDER.search(want):
        if re.fullmatch(_pattern(want), got) is None:
            yield _line(path, want, got)
    elif type(want) is not type(got) or want != got:
        yield _line(path, want, got)


def _pattern(text: str) -> str:
    literals, placeholders = _PLACEHOLDER.split(text), _PLACEHOLDER.findall(text)
    wild = [f"(?:{_WILD[placeholder]})" for placeholder in placeholders] + [""]
    return "".join(re.escape(literal) + gap for literal, gap in zip(literals, wild, strict=True))


def _line(path: str, want: Any, got: Any) -> str:
    return f"{path or '.'}: want {_shown(want)}, got {_shown(got)}"


def _shown(value: Any) -> str:
    return "nothing" if value is _ABSENT else value if value == "a refusal or an error" else json.dumps(value)


def _at(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else _ABSENT


def _sort(node: Any, path: list[str]) -> None:
    if isinstance(node, list):
        for item in node:
            _sort(item, path)
    elif isinstance(node, dict) and path:
        name = re.sub(r"\[\d*\*?\]", "", path[0])
        if len(path) == 1 and isinstance(node.get(name), list):
            node[name].sort(key=lambda item: json.dumps(item, sort_keys=True))
        else:
            _sort(node.get(name), path[1:])


def _unique(items: list[Any]) -> list[Any]:
    unique = {json.dumps(item, sort_keys=True): item for item in items}
    return [unique[key] for key in sorted(unique)]
