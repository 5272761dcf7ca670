# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Finds common mistakes in the pod templates of a JobSet, for which the API server will refuse its Jobs or their pods.

The labels and annotations of the JobSet and of its Jobs are checked, too. So are the JobSet's claims for volumes and
its coordinator, which JobSet's webhook may refuse.

Only what every supported API server refuses is reported. The API server has the last word, because this is not checked:
whether the objects exist to which a template refers, quotas, and admission; Windows; annotations for AppArmor and
seccomp; rare volume sources; user namespaces; sysctls of the host's namespaces; ``resizePolicy`` and rules for
restarts; divisors; the sums of pod-level resources; fields newer than Kubernetes 1.31.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from controller_runtime.apis.core.v1 import PersistentVolumeClaimTemplate
from controller_runtime.machinery import field, names, quantity
from controller_runtime.machinery.printable import cut
from pydantic_core import ValidationError

from pkg.constants import trainer as constants

Path = tuple[str | int, ...]
Data = Mapping[str, Any]
Problems = Iterator[tuple[Path, str]]
"""Paths of fields, and what is wrong with them. The text is empty if a value is missing."""

_MOST: Final = 16
"""Maximum number of violations that are reported for one JobSet."""
_SHOWN: Final = 128
"""Maximum number of characters of a tenant's value in a message."""
_READ: Final = 1024
"""Names are checked up to this length. The limits for names are lower."""
_TRIMMED: Final = "must not have leading or trailing whitespace"
_GATED: Final = "must not be set together with schedulingGates"
_HOST_PORT: Final = "is also the port of another container on the host, because of hostNetwork"
_NO_IMAGE: Final = "must name an image"
_IN_PODS: Final = (_TRIMMED, _GATED, _HOST_PORT, _NO_IMAGE)
"""What the API server refuses in pods, although it accepts it in the templates of Jobs."""
_NO_VOLUME: Final = "the pod has no such volume"
_NOT_MOUNTED: Final = "no container mounts this claim"
_HUGE_PAGES: Final = "hugepages-"
_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")


class Violation(NamedTuple):
    """A field for which the API server will refuse the Jobs of a replicated job, or their pods, or the JobSet."""

    job: str
    """The name of the replicated job; empty if the field belongs to the metadata of the JobSet."""
    path: Path
    """The path from the JobSet to the field. If a value is missing, the path leads to the place where it belongs."""
    keyed: Path
    """The same path, in which the names of items replace their indexes."""
    error: field.FieldError
    """The error. Its path begins at the object that is refused, as in the API server's answer."""

    @property
    def sentence(self) -> str:
        """The violation in one sentence."""
        if not self.job:
            claims = " or its claims" if self.path[:2] == ("spec", "volumeClaimPolicies") else ""
            return f"the API server will refuse the JobSet{claims}: {self.error}"
        refused = "pods" if self.error.detail in _IN_PODS else "Jobs"
        return f"the API server will refuse the {refused} of {cut(self.job, _SHOWN)}: {self.error}"


def violations(job_set: Data, *, of_runtime: bool = False) -> list[Violation]:
    """Return the violations in the pod templates of a JobSet, at most 16.

    The JobSet must be valid for its schema, which determines the types of all fields. With ``of_runtime``, it is the
    template of a runtime: values that a TrainJob may add, and the number of completions, are then not checked.
    """
    found: list[Violation] = []
    spec = _map(job_set, "spec")
    claims = [each for policy in _maps(spec, "volumeClaimPolicies") for each in _maps(policy, "templates")]
    claimed = {str(_at(each, _NAME)) for each in claims}  # JobSet adds these volumes to the pods
    own = itertools.chain(
        _walk(_map(job_set, "metadata"), _METADATA, ("metadata",)), _walk(spec, _JOB_SET, ("spec",))
    )
    for path, detail in own:
        if len(found) < _MOST and not (of_runtime and _is_up_to_train_jobs(job_set, path, detail)):
            found.append(_violation("", job_set, (), (), (path, detail)))
    for index, job in enumerate(_maps(spec, "replicatedJobs")):
        template, name = _map(job, "template"), str(job.get("name"))
        of_job = _map(template, "spec")
        if of_runtime:
            of_job = {**of_job, "completions": None}
        problems = itertools.chain(
            _walk(_map(template, "metadata"), _METADATA, ("metadata",)),
            _walk(of_job, _JOB, ("spec",)),
            ((("spec", *path), detail) for path, detail in _mounts(of_job, claimed)),
        )
        start: Path = ("spec", "replicatedJobs", index, "template")
        keyed: Path = ("spec", "replicatedJobs", name, "template")
        violations_of_job = (
            _violation(name, template, start, keyed, each)
            for each in problems
            if not (of_runtime and _is_up_to_train_jobs(template, *each))
        )
        found += itertools.islice(violations_of_job, _MOST - len(found))
    return found


def _is_up_to_train_jobs(data: Data, path: Path, detail: str) -> bool:
    """Return True if a TrainJob can mend a problem of its runtime by adding a volume, a mount, an image or a number."""
    lacks_image = not detail and path[3:4] == ("containers",) and path[-1] == "image"
    trains = _map(data, "metadata", "labels").get(constants.LABEL_TRAIN_JOB_ANCESTOR)
    if lacks_image and trains == constants.ANCESTOR_TRAINER:
        return bool(_map(data, *path[:-1]).get("name") == constants.NODE)
    lacks_source = not detail and "volumes" in path
    return lacks_source or detail in (_NO_VOLUME, _NOT_MOUNTED) or path[-1] == "podIndex"


def _violation(job: str, data: Data, start: Path, keyed: Path, problem: tuple[Path, str]) -> Violation:
    path, detail = problem
    value = _at(data, path)
    kind = field.ErrorType.INVALID if detail else field.ErrorType.REQUIRED
    shown = cut(value, _SHOWN) if isinstance(value, str) else field.OMITTED
    error = field.FieldError(kind, _render(path), shown, detail)
    return Violation(job, (*start, *path), (*keyed, *_keyed(data, path)), error)


_Check = Callable[[Any], str]
"""Returns what is wrong with a value, or an empty text."""
_Rule = Any
"""The rule for a value: a check, a map with the rules for fields, or a list with the rule for items.

In a map, ``name!`` is a required field, ``name*`` is a field that must be unique among the items of a list, and the
empty name has functions that yield the problems of the map as a whole. A pair of checks is for the keys and the
values of a map.
"""


def _walk(value: Any, rule: _Rule, path: Path) -> Problems:
    """Yield the problems of a value. Fields without a value, or with an empty text, count only if they are required."""
    if isinstance(rule, dict):
        for key, of_field in rule.items():
            name = key.rstrip("!*")
            if not name:
                for check in of_field:
                    yield from (((*path, *below), detail) for below, detail in check(value))
            elif not (held := value.get(name)) and "!" in key:
                yield (*path, name), ""
            elif held not in (None, ""):
                yield from _walk(held, of_field, (*path, name))
    elif isinstance(rule, list):
        for index, item in enumerate(value):
            yield from _walk(item, rule[0], (*path, index))
        yield from _repeated(value, rule[0], path)
    elif isinstance(rule, tuple):
        for key, held in value.items():
            if detail := rule[0](key) or rule[1]("" if held is None else held):
                yield (*path, key), detail
    elif rule is not None and (detail := rule(value)):
        yield path, detail


def _repeated(value: Any, of_item: _Rule, path: Path) -> Problems:
    for name in [key.rstrip("!*") for key in of_item if "*" in key] if isinstance(of_item, dict) else ():
        taken = {""}
        for index, item in enumerate(value):
            if (held := str(item.get(name) or "")) in taken and held:
                yield (*path, index, name), "must be unique"
            taken.add(held)


def _size_of_annotations(metadata: Data) -> Problems:
    size = sum(len(f"{key}{value}".encode()) for key, value in _map(metadata, "annotations").items())
    if size > names.ANNOTATIONS_MAX_SIZE:
        yield ("annotations",), f"may not be more than {names.ANNOTATIONS_MAX_SIZE} bytes"


def _text(check: Callable[[str], list[str]]) -> _Check:
    return lambda value: next(iter(check(value[:_READ])), "") if isinstance(value, str) else ""


def _matching(pattern: str, detail: str) -> _Check:
    matches = re.compile(pattern, re.ASCII | re.DOTALL).fullmatch
    return lambda value: detail if isinstance(value, str) and not matches(value[:_READ]) else ""


def _between(low: int, high: int = 2**31 - 1) -> _Check:
    return lambda value: (
        names.range_error(low, high) if isinstance(value, int) and not low <= value <= high else ""
    )


def _one_of(*allowed: str) -> _Check:
    return lambda value: "" if value in allowed else f"supported values: {', '.join(allowed)}"


def _any(value: Any) -> str:
    del value
    return ""


def _port(value: Any) -> str:
    return _PORT_NAME(value) if isinstance(value, str) else _PORT(value)


def _address(value: Any) -> str:
    try:  # leading zeros are accepted, zones are not
        ipaddress.ip_address(re.sub(r"(?<![0-9a-fA-F])0+(?=[0-9])", "", str(value)[:_READ]).replace("%", "/"))
    except ValueError:
        return "must be an IP address"
    return ""


def _forbidden(value: Any) -> str:
    return "must not be set here" if value != [] else ""


def _not_negative(value: Any) -> str:
    return "must not be negative" if _amount(value) < 0 else ""


def _positive(value: Any) -> str:
    return "must be greater than 0" if _amount(value) <= 0 else ""


def _node(values: Any) -> str:
    return _SUBDOMAIN(values[0]) if len(values) == 1 else "must have one value"


def _trimmed(value: Any) -> str:
    return "" if value == value.strip() else _TRIMMED


def _is_set(data: Data, name: str) -> bool:
    return data.get(name) not in (None, "", False, [])


def _choice(*of: str, besides: Sequence[str] = (), required: bool = True) -> Callable[[Data], Problems]:
    """Return a check that a map has one of the fields ``of``, or at most one field except those ``besides``."""

    def check(data: Data) -> Problems:
        present = [name for name in of or data if _is_set(data, name) and name not in besides]
        if required and not present:
            yield (), f"must have {' or '.join(of) or 'a source'}"
        yield from (((name,), f"must not be set together with {present[0]}") for name in present[1:2])

    return check


def _apart(*of: str) -> Callable[[Data], Problems]:
    return _choice(*of, required=False)


def _needs(name: str, other: str, *allowed: Any, unless: Any = None) -> Callable[[Data], Problems]:
    """Return a check that, if a field is set, another one is set too, or has one of the ``allowed`` values."""

    def check(data: Data) -> Problems:
        if data.get(name) in (None, [], unless):
            return
        if data.get(other) not in allowed if allowed else not _is_set(data, other):
            yield (name,), f"needs {other}{f': {allowed[0]}' if allowed else ''}"

    return check


def _is_device(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


def _resource(name: str) -> str:
    if detail := _KEY(f"requests.{name}" if _is_device(name) else name):
        return detail
    if "/" not in name and name not in _STANDARD and not name.startswith(_HUGE_PAGES):
        return f"must be {', '.join(_STANDARD)} or {_HUGE_PAGES}SIZE, or have a domain, as example.com/device"
    return "must not begin with requests." if _is_device(name) and name.startswith("requests.") else ""


def _amount(value: Any) -> int:
    """Return a quantity in billionths."""
    return quantity.parse(str(value)).nanos


def _page(name: str) -> int:
    """Return the size of a huge page in billionths of a byte, or 0 if the resource is misnamed."""
    try:
        return _amount(name.removeprefix(_HUGE_PAGES))
    except ValueError:
        return 0


def _resources(data: Data) -> Problems:
    limits, requests = _map(data, "limits"), _map(data, "requests")
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, value in amounts.items():
            if (amount := _amount(value)) < 0:
                yield (kind, name), "must not be negative"
            elif _is_device(name) and amount % 10**9:
                yield (kind, name), "must be an integer"
            elif name.startswith(_HUGE_PAGES) and ((page := _page(name)) <= 0 or amount % page):
                yield (kind, name), f"must be a multiple of {cut(name.removeprefix(_HUGE_PAGES), _SHOWN)}"
    for name, value in requests.items():
        exact, limit = _is_device(name) or name.startswith(_HUGE_PAGES), limits.get(name)
        if limit is None and exact:
            yield (
                ("limits", name),
                "must be set to the amount that is requested: it cannot be overcommitted",
            )
        elif limit is not None and (over := _amount(value) - _amount(limit)) and (exact or over > 0):
            yield (
                ("requests", name),
                f"must be {'' if exact else 'at most '}{cut(str(limit), _SHOWN)}, the limit",
            )
    used = {*limits, *requests}
    if any(name.startswith(_HUGE_PAGES) for name in used) and not used & {"cpu", "memory"}:
        yield (), "huge pages need cpu or memory, too"
    claims = set[Any]()
    for index, claim in enumerate(_maps(data, "claims")):
        if (claimed := (claim.get("name"), claim.get("request") or "")) in claims:
            yield ("claims", index, "name"), "must be unique"
        claims.add(claimed)


def _toleration(data: Data) -> Problems:
    operator, value = data.get("operator") or "Equal", data.get("value") or ""
    if not data.get("key") and operator != "Exists":
        yield ("operator",), "must be Exists if the key is empty"
    if operator == "Equal" and (detail := _VALUE(value)):
        yield ("value",), detail
    elif operator == "Exists" and value:
        yield ("value",), "must be empty for the operator Exists"


def _requirement(data: Data) -> Problems:
    operator, count = data.get("operator"), len(data.get("values") or ())
    if operator in ("Exists", "DoesNotExist") and count:
        yield ("values",), f"must be empty for the operator {operator}"
    elif (operator in ("In", "NotIn") and not count) or (operator in ("Gt", "Lt") and count != 1):
        yield ("values",), f"must have {'one value' if operator in ('Gt', 'Lt') else 'values'} for {operator}"


def _profile(data: Data) -> Problems:
    if data.get("type") == "Localhost" and not data.get("localhostProfile"):
        yield ("localhostProfile",), ""


def _modes(data: Data) -> Problems:
    if "ReadWriteOncePod" in (modes := data.get("accessModes") or ()) and len(set(modes)) > 1:
        yield ("accessModes",), "ReadWriteOncePod must not be set together with other modes"


def _projected(data: Data) -> Problems:
    taken = set[str]()
    for index, source in enumerate(_maps(data, "sources")):
        for kind in ("secret", "configMap", "downwardAPI"):
            for at, item in enumerate(_maps(_map(source, kind), "items")):
                if (path := str(item.get("path"))) in taken:
                    yield ("sources", index, kind, "items", at, "path"), "must be unique in the volume"
                taken.add(path)


def _container(data: Data) -> Problems:
    context = _map(data, "securityContext")
    privileged, added = context.get("privileged"), _at(context, ("capabilities", "add")) or ()
    if context.get("allowPrivilegeEscalation") is False and (privileged or "CAP_SYS_ADMIN" in added):
        path = ("securityContext", "allowPrivilegeEscalation")
        yield path, "cannot be false with privileged or CAP_SYS_ADMIN"
    for index, mount in enumerate(_maps(data, "volumeMounts")):
        if mount.get("mountPropagation") == "Bidirectional" and not privileged:
            yield ("volumeMounts", index, "mountPropagation"), "Bidirectional needs a privileged container"


def _pod(data: Data) -> Problems:
    for kind in ("limits", "requests"):
        for name in _map(data, "resources", kind):
            if name not in ("cpu", "memory") and not name.startswith(_HUGE_PAGES):
                yield ("resources", kind, name), "only containers can have this resource"
    if data.get("runtimeClassName") == "":
        yield ("runtimeClassName",), "must not be empty"
    servers = len(_at(data, ("dnsConfig", "nameservers")) or ())
    if servers > 3 or (data.get("dnsPolicy") == "None" and not servers):
        yield ("dnsConfig", "nameservers"), "must have at most 3 servers" if servers else ""
    pairs = set[Any]()
    for index, each in enumerate(_maps(data, "topologySpreadConstraints")):
        if (pair := (str(each.get("topologyKey")), str(each.get("whenUnsatisfiable")))) in pairs:
            yield ("topologySpreadConstraints", index), "repeats topologyKey and whenUnsatisfiable"
        pairs.add(pair)


def _of_containers(data: Data) -> Problems:
    """Yield the problems of containers that depend on each other or on fields of the pod."""
    claims, taken = {each.get("name") for each in _maps(data, "resourceClaims")}, set[Any]()
    on_host, grace = data.get("hostNetwork"), data.get("terminationGracePeriodSeconds")
    longest = 30 if grace is None else grace
    for kind, index, container in _containers(data):
        if (own := container.get("name")) in taken and own:
            yield (kind, index, "name"), "must be unique"
        taken.add(own)
        for at, claim in enumerate(_maps(_map(container, "resources"), "claims")):
            if claim.get("name") not in claims:
                yield (kind, index, "resources", "claims", at, "name"), "the pod has no such resource claim"
        for event in ("postStart", "preStop"):
            path = ("lifecycle", event, "sleep", "seconds")
            if (seconds := _at(container, path)) and seconds > longest:
                yield (kind, index, *path), f"must be at most {longest}, the grace period"
        is_main, in_use = kind == "containers", taken if kind == "containers" else set[Any]()
        for at, port in enumerate(_maps(container, "ports")):
            host_port, number = (kind, index, "ports", at, "hostPort"), port.get("hostPort") or None
            if is_main and on_host and number not in (None, port.get("containerPort")):
                yield host_port, "must equal containerPort with hostNetwork"
            used = number or (port.get("containerPort") if is_main and on_host else None)
            if used and (key := (port.get("protocol") or "TCP", port.get("hostIP") or "", used)) in in_use:
                where = "pod" if is_main else "init container"
                yield host_port, f"must be unique in the {where}" if number else _HOST_PORT
            in_use.add(used and key)


def _at_most(most: int, name: str) -> Callable[[Data], Problems]:
    """Return a check that a list has at most ``most`` items."""
    return lambda data: (
        ((name,), f"must have at most {most} items") for _ in (data.get(name) or ())[most:][:1]
    )


def _exit_codes(data: Data) -> Problems:
    values = data.get("values") or []
    if not values or values != sorted(set(values)):
        yield ("values",), "must be ascending numbers, each of them once" if values else "must have values"
    elif data.get("operator") == "In" and 0 in values:
        yield ("values",), "must not contain 0 for the operator In"


def _job(data: Data) -> Problems:
    """Yield the problems of a Job's fields that depend on each other or on the pod template."""
    pod, policy = _map(data, "template", "spec"), data.get("podFailurePolicy")
    limit = data.get("backoffLimitPerIndex")
    mode = data.get("completionMode") or "Indexed"  # JobSet's default
    if policy is not None and pod.get("restartPolicy") != "Never":
        yield ("template", "spec", "restartPolicy"), "must be Never because the Job has a podFailurePolicy"
    if policy is not None and data.get("podReplacementPolicy") == "TerminatingOrFailed":
        yield ("podReplacementPolicy",), "must be Failed because the Job has a podFailurePolicy"
    own = {each.get("name") for _, _, each in _containers(pod)}
    for index, rule in enumerate(_maps(policy or {}, "rules")):
        if limit is None and rule.get("action") == "FailIndex":
            yield ("podFailurePolicy", "rules", index, "action"), "needs backoffLimitPerIndex"
        if (name := _map(rule, "onExitCodes").get("containerName")) and name not in own:
            path = ("podFailurePolicy", "rules", index, "onExitCodes", "containerName")
            yield path, "the pod has no such container"
    if limit is None and data.get("maxFailedIndexes") is not None:
        yield ("maxFailedIndexes",), "needs backoffLimitPerIndex"
    for name in ("backoffLimitPerIndex", "successPolicy") if mode != "Indexed" else ():
        if data.get(name) is not None:
            yield (name,), "needs completionMode: Indexed"
    completions, failed = data.get("completions"), data.get("maxFailedIndexes")
    if completions is not None and failed is not None and failed > completions:
        yield ("maxFailedIndexes",), f"must be at most {completions}, the number of completions"


def _success_rules(data: Data) -> Problems:
    for index, rule in enumerate(_maps(_map(data, "successPolicy"), "rules")):
        path: Path = ("successPolicy", "rules", index)
        indexes, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        most = data.get("completions")
        if indexes is None and count is None:
            yield path, "must have succeededIndexes or succeededCount"
        elif indexes is not None:
            most, detail = _indexes(str(indexes), most)
            if detail:
                yield (*path, "succeededIndexes"), detail
        if count is not None and most is not None and count > most:
            yield (*path, "succeededCount"), f"must be at most {most}, the number of indexes"


def _indexes(text: str, completions: int | None) -> tuple[int | None, str]:
    """Return the number of indexes in a list as ``0,2-4``, and what is wrong with it. Without a number, it is None."""
    last, total = -1, 0
    if len(text) > _LONGEST_INDEXES:
        return None, f"must have at most {_LONGEST_INDEXES} characters"
    for interval in text.split(",") if text else ():
        if not (matched := _INTERVAL.fullmatch(interval)):
            return None, "must be numbers and intervals, as 0,2-4"
        first = int(matched[1])
        end = int(matched[2]) if matched[2] else first
        if first <= last or (matched[2] and end <= first):
            return None, "must be ascending numbers and intervals"
        if completions is not None and end >= completions:
            return None, f"must be below {completions}, the number of completions"
        last, total = end, total + end - first + 1
    return total, ""


def _claim(data: Data) -> Problems:
    """Yield the problems of one claim. Claims have no types in a JobSet: a wrong type is left to JobSet's schema."""
    with contextlib.suppress(ValidationError):
        typed = PersistentVolumeClaimTemplate.from_dict(dict(data)).to_dict()
        yield from _walk(typed, {"metadata": {**_METADATA, "name!": _LABEL}, "spec": _CLAIM}, ())


def _claims(spec: Data) -> Problems:
    """Yield the problems of the claims that JobSet creates for its pods, and of volumes that have their names."""
    if not spec.get("volumeClaimPolicies"):
        return
    taken, pods = set[Any](), [_map(job, *_POD_OF_JOB) for job in _maps(spec, "replicatedJobs")]
    containers = (each for pod in pods for *_, each in _containers(pod))
    mounted = {mount.get("name") for each in containers for mount in _maps(each, "volumeMounts")}
    for index, policy in enumerate(_maps(spec, "volumeClaimPolicies")):
        for at, claim in enumerate(_maps(policy, "templates")):
            if (name := str(_at(claim, _NAME))) in taken or name not in mounted:
                path: Path = ("volumeClaimPolicies", index, "templates", at, *_NAME)
                yield path, "must be unique" if name in taken else _NOT_MOUNTED
            taken.add(name)
    for index, pod in enumerate(pods if taken else ()):
        for at, volume in enumerate(_maps(pod, "volumes")):
            if volume.get("name") in taken:
                path = ("replicatedJobs", index, *_POD_OF_JOB, "volumes", at, "name")
                yield path, "is the name of a claim of volumeClaimPolicies"


def _coordinator(spec: Data) -> Problems:
    """Yield the problem of a coordinator that is no pod of its job."""
    if not (leader := _map(spec, "coordinator")):
        return
    named = (
        each for each in _maps(spec, "replicatedJobs") if each.get("name") == leader.get("replicatedJob")
    )
    job = _map(next(named, {}), "template", "spec")
    if job.get("completionMode") == "NonIndexed":
        yield ("coordinator", "replicatedJob"), "its Job needs completionMode: Indexed"
    pods = job.get("completions")
    if pods is not None and not 0 <= (leader.get("podIndex") or 0) < pods:
        yield ("coordinator", "podIndex"), f"must be from 0 to {pods - 1}: its Job has {pods} pods"


def _mounts(job: Data, claimed: set[str]) -> Problems:
    """Yield a problem for each mount whose volume is neither in the pod nor ``claimed``, or is of the wrong kind."""
    pod = _map(job, "template", "spec")
    volumes = {each.get("name"): each for each in _maps(pod, "volumes")}
    for kind, index, container in _containers(pod):
        mounted = {each.get("name") for each in _maps(container, "volumeMounts")}
        for place in ("volumeMounts", "volumeDevices"):
            for at, mount in enumerate(_maps(container, place)):
                name, path = mount.get("name"), ("template", "spec", kind, index, place, at, "name")
                if name not in volumes and name not in claimed:
                    yield path, _NO_VOLUME
                elif place == "volumeDevices" and name in mounted:
                    yield path, "must not be the name of a volume mount"
                elif place == "volumeDevices" and not (
                    name in claimed or volumes[name].keys() & {"persistentVolumeClaim", "ephemeral"}
                ):
                    yield path, "must be a volume with a persistentVolumeClaim"


def _containers(pod: Data) -> Iterator[tuple[str, int, Data]]:
    for kind in ("containers", "initContainers"):
        yield from ((kind, index, each) for index, each in enumerate(_maps(pod, kind)))


def _maps(data: Data, name: str) -> Sequence[Data]:
    return data.get(name) or ()


def _map(data: Data, *path: str | int) -> Data:
    return _at(data, path) or {}


def _at(data: Any, path: Path) -> Any:
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _keyed(data: Any, path: Path) -> Path:
    return tuple(
        _at(data, path[: number + 1]).get("name", step)
        if isinstance(step, int) and number < len(path) - 1
        else step
        for number, step in enumerate(path)
    )


def _render(path: Path) -> str:
    text = ""
    for step in path:
        is_key = isinstance(step, int) or not step.isidentifier()
        text += f"[{step}]" if is_key else f".{step}" if text else str(step)
    return text


_LABEL, _SUBDOMAIN = _text(names.is_dns1123_label), _text(names.is_dns1123_subdomain)
_KEY, _VALUE = _text(names.is_qualified_name), _text(names.is_label_value)
_NUMBER, _MODE, _PORT, _WEIGHT = _between(0), _between(0, 0o777), _between(1, 65535), _between(1, 100)
_PORT_NAME: Final = _matching(
    r"(?=.{1,15}\Z)(?=[0-9-]*[a-z])(?!.*--)[a-z0-9]([a-z0-9-]*[a-z0-9])?",
    "must have at most 15 lower case letters, digits and single hyphens, and at least one letter",
)
_VARIABLE: Final = _matching("[ -<>-~]*", "must consist of printable ASCII characters except '='")
_NO_BACKSTEPS: Final = _matching(r"(?!(.*/)?\.\.(/|\Z)).*", "must not contain '..'")
_BELOW: Final = _matching(r"(?!/)(?!(.*/)?\.\.(/|\Z)).*", "must be a relative path without '..'")
_KEPT: Final = _matching(
    r"(?!\.\.?\Z|\.\.)[-._a-zA-Z0-9]+", "must consist of letters, digits, '-', '_' and '.'"
)
_SEARCH: Final = _matching(r"\.|(_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\.|\Z))+", "must be the name of a domain")
_SYSCTL: Final = _matching(
    r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?", "is not a sysctl"
)
_FIELD: Final = _matching(
    r"metadata\.(name|namespace|uid|(labels|annotations)\['([-.\w]+/)?[A-Za-z0-9]([-.\w]*[A-Za-z0-9])?'\])"
    r"|spec\.(nodeName|serviceAccountName)|status\.(host|pod)IPs?",
    "containers cannot read this field",
)
_FIELD_OF_VOLUME: Final = _matching(
    r"metadata\.(name|namespace|uid|labels|annotations|(labels|annotations)\['.*'\])",
    "volumes cannot have this field",
)
_AMOUNT: Final = _matching(
    r"(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-.*)", "containers cannot read this resource"
)
_INTERVAL: Final = re.compile(r"\+?([0-9]{1,64})(?:-\+?([0-9]{1,64}))?", re.ASCII)
_LONGEST_INDEXES: Final = 64 * 1024
_NAME: Final = ("metadata", "name")
_POD_OF_JOB: Final = ("template", "spec", "template", "spec")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
# fmt: off
_LABELS: Final = (_KEY, _VALUE)
_METADATA: Final = {
    "labels": _LABELS, "annotations": (lambda key: _KEY(key.lower()), _any), "": [_size_of_annotations],
}
_PULL: Final = _one_of("Always", "IfNotPresent", "Never")
_HANDLER: Final = {
    "exec": {"command!": None}, "tcpSocket": {"port!": _port}, "grpc": {"port!": _PORT}, "sleep": {"seconds": _NUMBER},
    "httpGet": {
        "port!": _port, "scheme": _one_of("HTTP", "HTTPS"),
        "httpHeaders": [{"name!": _matching("[-A-Za-z0-9]+", "must consist of letters, digits and hyphens")}],
    },
    "": [_choice("exec", "httpGet", "tcpSocket", "grpc", "sleep")],
}
_PROBE: Final = {
    **_HANDLER, "initialDelaySeconds": _NUMBER, "timeoutSeconds": _NUMBER, "periodSeconds": _NUMBER,
    "successThreshold": _NUMBER, "failureThreshold": _NUMBER, "terminationGracePeriodSeconds": _between(1),
}
_RESOURCES: Final = {"limits": (_resource, _any), "requests": (_resource, _any), "": [_resources]}
_EXPRESSION: Final = {
    "key!": _KEY, "operator!": _one_of("In", "NotIn", "Exists", "DoesNotExist"), "": [_requirement],
}
_SELECTOR: Final = {"matchLabels": _LABELS, "matchExpressions": [_EXPRESSION]}
_NODE_TERM: Final = {
    "matchExpressions": [{**_EXPRESSION, "operator!": _one_of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")}],
    "matchFields": [{"key!": _one_of("metadata.name"), "operator!": _one_of("In", "NotIn"), "values!": _node}],
}
_POD_TERM: Final = {
    "topologyKey!": _KEY, "labelSelector": _SELECTOR, "namespaceSelector": _SELECTOR, "namespaces": [_LABEL],
    "matchLabelKeys": [_KEY], "mismatchLabelKeys": [_KEY],
    "": [_needs("matchLabelKeys", "labelSelector"), _needs("mismatchLabelKeys", "labelSelector")],
}
_POD_AFFINITY: Final = {_REQUIRED: [_POD_TERM], _PREFERRED: [{"weight!": _WEIGHT, "podAffinityTerm!": _POD_TERM}]}
_KEY_REF: Final = {"name!": _SUBDOMAIN, "key!": _KEPT}
_ITEMS: Final = {"items": [{"key!": None, "path!": _BELOW, "mode": _MODE}]}
_DOWNWARD: Final = {
    "items": [{
        "path!": _BELOW, "mode": _MODE, "fieldRef": {"fieldPath!": _FIELD_OF_VOLUME},
        "resourceFieldRef": {"containerName!": None, "resource!": _AMOUNT},
        "": [_choice("fieldRef", "resourceFieldRef")],
    }],
}
_PROFILE: Final = {
    "type!": _one_of("Localhost", "RuntimeDefault", "Unconfined"),
    "": [_profile, _needs("localhostProfile", "type", "Localhost")],
}
_SECURITY: Final = {
    "runAsUser": _NUMBER, "runAsGroup": _NUMBER, "fsGroup": _NUMBER, "procMount": _one_of("Default", "Unmasked"),
    "fsGroupChangePolicy": _one_of("OnRootMismatch", "Always"), "supplementalGroups": [_NUMBER],
    "seccompProfile": {**_PROFILE, "localhostProfile": _BELOW},
    "appArmorProfile": {**_PROFILE, "localhostProfile": _matching(r"\S(.*\S)?", "must not be padded")},
    "sysctls": [{"name!*": _SYSCTL}],
}
_CONTAINER: Final = {
    "name!": _LABEL, "image!": _trimmed, "imagePullPolicy": _PULL,
    "terminationMessagePolicy": _one_of("File", "FallbackToLogsOnError"),
    "restartPolicy": _one_of("Always", "Never", "OnFailure"),
    "ports": [{
        "name*": _PORT_NAME, "containerPort!": _PORT, "hostPort": _between(0, 65535),
        "protocol": _one_of("TCP", "UDP", "SCTP"),
    }],
    "env": [{
        "name!": _VARIABLE, "": [_apart("value", "valueFrom")],
        "valueFrom": {
            "configMapKeyRef": _KEY_REF, "secretKeyRef": _KEY_REF, "fieldRef": {"fieldPath!": _FIELD},
            "resourceFieldRef": {"resource!": _AMOUNT}, "": [_choice()],
        },
    }],
    "envFrom": [{
        "prefix": _VARIABLE, "configMapRef": {"name!": _SUBDOMAIN}, "secretRef": {"name!": _SUBDOMAIN},
        "": [_choice("configMapRef", "secretRef")],
    }],
    "volumeMounts": [{
        "name!": None, "mountPath!*": None, "subPath": _BELOW, "subPathExpr": _BELOW,
        "mountPropagation": _one_of("None", "HostToContainer", "Bidirectional"),
        "recursiveReadOnly": _one_of("Disabled", "Enabled", "IfPossible"),
        "": [
            _apart("subPath", "subPathExpr"), _needs("recursiveReadOnly", "readOnly", unless="Disabled"),
            _needs("recursiveReadOnly", "mountPropagation", "None", None, "", unless="Disabled"),
        ],
    }],
    "volumeDevices": [{"name!*": None, "devicePath!*": _NO_BACKSTEPS}],
    "resources": _RESOURCES, "readinessProbe": {**_PROBE, "terminationGracePeriodSeconds": _forbidden},
    "livenessProbe": {**_PROBE, "successThreshold": _between(0, 1)},
    "startupProbe": {**_PROBE, "successThreshold": _between(0, 1)},
    "lifecycle": {"postStart": _HANDLER, "preStop": _HANDLER}, "securityContext": _SECURITY, "": [_container],
}
_CLAIM: Final = {
    "accessModes!": [_one_of("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")],
    "storageClassName": _SUBDOMAIN, "volumeMode": _one_of("Block", "Filesystem"), "": [_modes],
    "volumeAttributesClassName": _SUBDOMAIN, "selector": _SELECTOR,
    "dataSource": {"kind!": None, "name!": None}, "resources!": {"requests!": {"storage!": _positive}},
}
_VOLUME: Final = {
    "name!*": _LABEL, "": [_choice(besides=("name",), required=False)],  # a volume without a source is an emptyDir
    "image": {"pullPolicy": _PULL, "": [lambda data: [] if data.get("reference") else [(("reference",), _NO_IMAGE)]]},
    "emptyDir": {"sizeLimit": _not_negative}, "persistentVolumeClaim": {"claimName!": None},
    "hostPath": {
        "path!": _NO_BACKSTEPS, "type": _one_of(
            "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"
        ),
    },
    "csi": {
        "driver!": _text(lambda name: names.is_dns1123_subdomain(name.lower())),
        "nodePublishSecretRef": {"name!": None},
    },
    "azureFile": {"secretName!": None, "shareName!": None}, "cephfs": {"monitors!": None},
    "azureDisk": {"diskName!": None, "diskURI!": None}, "flexVolume": {"driver!": None},
    "gcePersistentDisk": {"pdName!": None}, "portworxVolume": {"volumeID!": None},
    "cinder": {"volumeID!": None}, "glusterfs": {"endpoints!": None, "path!": None},
    "gitRepo": {"repository!": None}, "rbd": {"monitors!": None, "image!": None},
    "nfs": {"server!": None, "path!": _matching("/.*", "must be an absolute path")},
    "secret": {"secretName!": None, "defaultMode": _MODE, **_ITEMS},
    "configMap": {"name!": None, "defaultMode": _MODE, **_ITEMS}, "downwardAPI": {"defaultMode": _MODE, **_DOWNWARD},
    "projected": {
        "defaultMode": _MODE,
        "sources": [{
            "secret": {"name!": None, **_ITEMS}, "configMap": {"name!": None, **_ITEMS}, "downwardAPI": _DOWNWARD,
            "serviceAccountToken": {"path!": _BELOW, "expirationSeconds": _between(600, 2**32)},
            "": [_apart()],
        }],
        "": [_projected],
    },
    "ephemeral": {"volumeClaimTemplate!": {"metadata": {**_METADATA, "name": _forbidden}, "spec!": _CLAIM}},
}
_OF_SIDECARS: Final = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_POD: Final = {
    "containers!": [_CONTAINER],
    "initContainers": [
        {**_CONTAINER, "": [_container, *(_needs(each, "restartPolicy", "Always") for each in _OF_SIDECARS)]}
    ],
    "ephemeralContainers": _forbidden, "volumes": [_VOLUME], "nodeSelector": _LABELS,
    "restartPolicy": _one_of("OnFailure", "Never"),  # without it, JobSet sets OnFailure
    "serviceAccountName": _SUBDOMAIN, "priorityClassName": _SUBDOMAIN, "runtimeClassName": _SUBDOMAIN,
    "nodeName": _SUBDOMAIN, "hostname": _LABEL, "subdomain": _LABEL, "activeDeadlineSeconds": _between(1),
    "preemptionPolicy": _one_of("PreemptLowerPriority", "Never"),
    "dnsPolicy": _one_of("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
    "dnsConfig": {"nameservers": [_address], "searches": [_SEARCH], "options": [{"name!": None}]},
    "os": {"name!": _one_of("linux", "windows")}, "readinessGates": [{"conditionType!": _KEY}],
    "hostAliases": [{"ip!": _address, "hostnames": [_SUBDOMAIN]}],
    "securityContext": _SECURITY, "schedulingGates": [{"name!*": _KEY}],
    "resources": {**_RESOURCES, "claims": _forbidden},
    "resourceClaims": [{
        "name!*": _LABEL, "resourceClaimName": _SUBDOMAIN, "resourceClaimTemplateName": _SUBDOMAIN,
        "": [_choice("resourceClaimName", "resourceClaimTemplateName")],
    }],
    "tolerations": [{
        "key": _KEY, "operator": _one_of("Equal", "Exists", "Lt", "Gt"),
        "effect": _one_of("NoSchedule", "PreferNoSchedule", "NoExecute"),
        "": [_toleration, _needs("tolerationSeconds", "effect", "NoExecute")],
    }],
    "affinity": {
        "nodeAffinity": {
            _REQUIRED: {"nodeSelectorTerms!": [_NODE_TERM]},
            _PREFERRED: [{"weight!": _WEIGHT, "preference": _NODE_TERM}],
        },
        "podAffinity": _POD_AFFINITY, "podAntiAffinity": _POD_AFFINITY,
    },
    "topologySpreadConstraints": [{
        "maxSkew!": _between(1), "topologyKey!": None, "minDomains": _between(1), "labelSelector": _SELECTOR,
        "whenUnsatisfiable!": _one_of("DoNotSchedule", "ScheduleAnyway"), "matchLabelKeys": [_KEY],
        "": [_needs("minDomains", "whenUnsatisfiable", "DoNotSchedule"), _needs("matchLabelKeys", "labelSelector")],
        "nodeAffinityPolicy": _one_of("Honor", "Ignore"), "nodeTaintsPolicy": _one_of("Honor", "Ignore"),
    }],
    "": [_apart("hostPID", "shareProcessNamespace"), _apart("schedulingGates", "nodeName"), _pod, _of_containers],
}
_JOB: Final = {
    "template": {
        "metadata": _METADATA,
        "spec": _POD,
    },
    "completionMode": _one_of("Indexed", "NonIndexed"),
    "podReplacementPolicy": _one_of("TerminatingOrFailed", "Failed"),
    "managedBy": _matching(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?/.+", "must have a domain, as example.com/controller"),
    "selector": lambda _value: "must not be set: each Job has a selector of its own",
    "manualSelector": lambda value: "must not be set: each Job has a selector of its own" if value else "",
    "successPolicy": {"rules!": [{"succeededCount": _NUMBER}], "": [_at_most(20, "rules")]},
    "podFailurePolicy": {"": [_at_most(20, "rules")], "rules": [{
        "action!": _one_of("FailJob", "FailIndex", "Ignore", "Count"), "": [
            _choice("onExitCodes", "onPodConditions"), _at_most(20, "onPodConditions"),
        ],
        "onExitCodes": {"operator!": _one_of("In", "NotIn"), "": [_exit_codes, _at_most(255, "values")]},
        "onPodConditions": [{"type!": _KEY, "status": _one_of("True", "False", "Unknown")}],
    }]},
    "": [_job, _success_rules],
}
_JOB_SET: Final = {
    "volumeClaimPolicies": [{"templates": [{"": [_claim]}]}], "": [_claims, _coordinator],
}
# fmt: on
