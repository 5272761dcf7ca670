# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Permitted differences from the recorded answers of the second generation's servers.

- a token that is bound to no pod is refused;
- a chunked body that is too large is answered like one that names its length, before the token is checked;
- errors of the Configuration are worded differently: of the rules' errors, path and detail are compared, and of the
  decoder's errors the key;
- a negative ``clientConnection.qps`` turns the throttling off;
- sections and keys of the Configuration that upstream lacks are left out, and an absent ``leaderElection`` has defaults;
- only HTTP/1.1 is offered to clients.
"""

from __future__ import annotations

import copy
import re
from typing import Any, Final

from pkg import config

from .cases import Case

Document = dict[str, Any]

OPS: Final = ("config", "statusUpdate", "authorize")
_RULES: Final = "invalid configuration: "
_DECODER: Final = re.compile(
    r'unknown field "([^"]+)"|key "([^"]+)" already|field (?:Configuration|TLSOptions)\.([\w.]+)'
)
_OFF: Final = "clientConnection.qps: "
_ZERO: Final = ("", "0s", None)


def concerns(case: Case) -> bool:
    """Return True if a case is about the servers of the second generation."""
    return case.op in OPS


def expectations(case: Case, want: Document, got: Document) -> tuple[Document, Document]:
    """Return both answers with the permitted differences removed."""
    want, got = copy.deepcopy(want), copy.deepcopy(got)
    if case.op == "authorize" and not (case.input["token"]["claims"].get("kubernetes.io") or {}).get("pod"):
        want["authorized"] = False
    if case.op == "statusUpdate" and case.input["request"].get("chunked") and got.get("code") == 413:
        message = {"message": "Payload too large", "reason": "RequestEntityTooLarge", "code": 413}
        want["code"], want["body"] = 413, {**want["body"], **message}
        want.pop("authorize", None)
    if case.op == "config":
        if "error" in want:
            return _errors(want, got)
        if not all(isinstance(want[part], dict) for part in ("config", "options")):
            return want, got
        _sections(want, got)
    return want, got


def _errors(want: Document, got: Document) -> tuple[Document, Document]:
    error = str(got.get("error"))
    if want["error"].startswith(_RULES):
        wanted = re.split(r", (?=\w+\.)", want["error"].removeprefix(_RULES).strip("[]"))
        answered = error.removeprefix(_RULES).split("; ")
        return (
            {"error": sorted(each for each in wanted if not each.startswith(_OFF))},
            {"error": sorted(answered)},
        )
    key = _DECODER.search(want["error"])
    named = next(filter(None, key.groups())) if key else ""
    return {"error": True}, {"error": "error" in got and named in error}


def _sections(want: Document, got: Document) -> None:
    """Add our defaults to the wanted fields, of which upstream shows only those that are set."""
    wanted = want["config"]
    if isinstance(election := wanted.get("leaderElection"), dict):
        wanted["leaderElection"] = {key: value for key, value in election.items() if value not in _ZERO}
    want["config"] = _numbers(_merged(config.load().to_dict(), wanted))
    if isinstance(got.get("config"), dict):
        got["config"] = _numbers(got["config"])
    tls = want["options"]["tls"]
    tls["nextProtos"] = [each for each in tls["nextProtos"] if each == "http/1.1"]


def _merged(defaults: Document, wanted: Document) -> Document:
    both = {key for key in wanted if isinstance(wanted[key], dict) and isinstance(defaults.get(key), dict)}
    return {**defaults, **wanted, **{key: _merged(defaults[key], wanted[key]) for key in both}}


def _numbers(value: Document) -> Document:
    """Return a document as upstream writes it: whole numbers without a fraction, and no empty lists."""
    return {
        key: _numbers(held) if isinstance(held, dict) else _number(held)
        for key, held in value.items()
        if held != []
    }


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
