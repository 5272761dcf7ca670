# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Properties of any ``podTemplateOverrides``."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from controller_runtime.machinery.patch import StrategicMergeError
from hypothesis import given
from hypothesis import strategies as st

from pkg.apis.jobset.v1alpha2 import JobSetSpec
from pkg.apis.trainer.v1alpha1 import PodTemplateOverride, RuntimePatch
from pkg.runtime.core.overrides import with_overrides

NAMES = st.sampled_from("abcde")
MAPS = st.dictionaries(NAMES, NAMES, min_size=1, max_size=3)


def named(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any]]]:
    items = st.fixed_dictionaries({"name": NAMES}, optional=fields)
    return st.lists(items, min_size=1, max_size=4, unique_by=lambda item: item["name"])


ENV = named(value=NAMES)
MOUNTS = st.lists(
    st.fixed_dictionaries({"name": NAMES, "mountPath": NAMES.map("/{}".format)}),
    min_size=1,
    max_size=3,
    unique_by=lambda mount: mount["mountPath"],
)
CONTAINERS = named(env=ENV, volumeMounts=MOUNTS)
FIELDS = {
    "nodeSelector": MAPS,
    "serviceAccountName": NAMES,
    "tolerations": st.lists(st.fixed_dictionaries({"key": NAMES}), min_size=1, max_size=2),
    "volumes": named(emptyDir=st.just({})),
    "containers": CONTAINERS,
    "initContainers": CONTAINERS,
    "imagePullSecrets": named(),
    "schedulingGates": named(),
}
PODS = st.fixed_dictionaries({}, optional=FIELDS)
OVERRIDES = st.builds(
    lambda jobs, labels, pod: {
        "targetJobs": [{"name": name} for name in jobs],
        "metadata": {"labels": labels},
        "spec": pod,
    },
    st.lists(st.sampled_from(["node", "launcher"]), min_size=1, max_size=2),
    MAPS,
    PODS,
)
TEMPLATES = st.builds(
    lambda *pods: {
        "replicatedJobs": [
            {
                "name": name,
                "template": {"spec": {"template": {"metadata": {"labels": {"z": "z"}}, "spec": pod}}},
            }
            for name, pod in zip(["node", "launcher", "other"], pods, strict=True)
        ]
    },
    PODS,
    PODS,
    PODS,
)
Document = dict[str, Any]


def merged(template: Document, *overrides: Document) -> Document:
    spec = JobSetSpec.from_dict(template)
    return with_overrides(spec, [PodTemplateOverride.from_dict(each) for each in overrides]).to_dict()


def pod_templates(spec: Document) -> dict[str, Any]:
    """Return the pod templates by job; an empty one has an empty spec."""
    return {
        job["name"]: {"spec": {}, **job["template"]["spec"]["template"]} for job in spec["replicatedJobs"]
    }


@given(TEMPLATES, OVERRIDES)
def test_an_override_said_twice_is_one_said_once(template: Document, override: Document) -> None:
    assert merged(template, override, override) == merged(template, override)


@given(TEMPLATES, OVERRIDES, OVERRIDES)
def test_one_after_another_is_both_at_once(template: Document, first: Document, second: Document) -> None:
    assert merged(merged(template, first), second) == merged(template, first, second)


@given(TEMPLATES, OVERRIDES)
def test_what_an_override_does_not_name_survives(template: Document, override: Document) -> None:
    before, after = pod_templates(merged(template)), pod_templates(merged(template, override))
    targets = {target["name"] for target in override["targetJobs"]}
    for name, pod in before.items():
        if name not in targets:
            assert after[name] == pod
            continue
        for field, held in pod["spec"].items():
            if field not in override["spec"]:
                assert after[name]["spec"][field] == held
        assert after[name]["metadata"]["labels"].items() >= override["metadata"]["labels"].items()
        assert "z" in after[name]["metadata"]["labels"]


@given(TEMPLATES, OVERRIDES)
def test_items_that_an_override_does_not_name_keep_their_content_and_order(
    template: Document, override: Document
) -> None:
    before, after = pod_templates(merged(template)), pod_templates(merged(template, override))
    for target in override["targetJobs"]:
        for field in ("containers", "initContainers", "volumes", "imagePullSecrets"):
            named_ones = {item["name"] for item in override["spec"].get(field, ())}
            kept = [
                item
                for item in before[target["name"]]["spec"].get(field, ())
                if item["name"] not in named_ones
            ]
            left = after[target["name"]]["spec"].get(field, [])
            assert [item for item in left if item["name"] not in named_ones] == kept
            assert {item["name"] for item in left} >= named_ones


@given(TEMPLATES, OVERRIDES, OVERRIDES)
def test_the_later_override_has_the_last_word(template: Document, first: Document, second: Document) -> None:
    after = pod_templates(merged(template, first, second))
    for target in second["targetJobs"]:
        pod = after[target["name"]]["spec"]
        wanted = second["spec"]
        assert pod.get("tolerations") == wanted.get("tolerations", pod.get("tolerations"))
        assert pod.get("serviceAccountName") == wanted.get(
            "serviceAccountName", pod.get("serviceAccountName")
        )
        assert pod.get("nodeSelector", {}).items() >= wanted.get("nodeSelector", {}).items()
        env = {c["name"]: {e["name"]: e for e in c.get("env", ())} for c in pod.get("containers", ())}
        for container in wanted.get("containers", ()):
            for variable in container.get("env", ()):
                assert env[container["name"]][variable["name"]].items() >= variable.items()


@given(TEMPLATES, OVERRIDES, OVERRIDES)
def test_overrides_of_different_jobs_do_not_mind_their_order(
    template: Document, first: Document, second: Document
) -> None:
    first = {**first, "targetJobs": [{"name": "node"}]}
    second = {**second, "targetJobs": [{"name": "launcher"}]}
    assert merged(template, first, second) == merged(template, second, first)


def many(count: int, spec: Callable[[int], Document]) -> list[Document]:
    return [{"targetJobs": [{"name": "node"}], "spec": spec(number)} for number in range(count)]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(lambda n: {"volumes": [{"name": f"v{n}", "emptyDir": {}}]}, id="a volume each"),
        pytest.param(lambda n: {"nodeSelector": {f"n{n}": "x"}}, id="a label each"),
        pytest.param(
            lambda n: {"volumes": [{"name": f"v{n}"}], "affinity": {"$retainKeys": []}}, id="with directives"
        ),
    ],
)
def test_thousands_of_overrides_that_each_make_the_template_larger_are_refused(
    spec: Callable[[int], Document],
) -> None:
    template = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {}}}}]}
    with pytest.raises(StrategicMergeError, match=r"the first \d{3} of 6000 write more than 500000 values"):
        merged(template, *many(6000, spec))


def test_thousands_of_overrides_of_one_field_are_merged() -> None:
    template = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {}}}}]}
    after = merged(template, *many(6000, lambda n: {"nodeSelector": {"zone": str(n)}}))
    assert pod_templates(after)["node"]["spec"] == {"nodeSelector": {"zone": "5999"}}


@pytest.mark.parametrize("changes", ["overrides", "patches"])
@pytest.mark.parametrize(
    ("selector", "merges"),
    [
        pytest.param({str(number): "x" for number in range(5000)}, 100, id="many values"),
        pytest.param({"a": "x" * 320_000}, 100, id="a long value"),
        pytest.param({"x" * 320_000: "a"}, 100, id="a long key"),
    ],
)
def test_a_change_of_many_jobs_stops_when_it_has_written_too_much(
    changes: str, selector: Document, merges: int
) -> None:
    jobs = [{"name": f"j{number}"} for number in range(1000)]
    template = {"replicatedJobs": [{**each, "template": {"spec": {"template": {}}}} for each in jobs]}
    pod = {"spec": {"nodeSelector": selector}}
    overrides, patches = [], []
    if changes == "overrides":
        overrides = [PodTemplateOverride.from_dict({"targetJobs": jobs, **pod})]
        error = "^podTemplateOverrides: the first 1 of 1 write more than 500000 values; merge"
    else:
        patched = [{**each, "template": {"spec": {"template": pod}}} for each in jobs]
        spec = {"template": {"spec": {"replicatedJobs": patched}}}
        patches = [RuntimePatch.from_dict({"manager": "acme.io/a", "trainingRuntimeSpec": spec})]
        error = r"^runtimePatches: patch of acme.io/a for job j\d+: the first 1 of 1 write more than 500000 values"
    seen: list[Document] = []

    with pytest.raises(StrategicMergeError, match=error):
        with_overrides(JobSetSpec.from_dict(template), overrides, patches, lambda data, _: seen.append(data))

    pods = [each["template"]["spec"]["template"] for each in seen[0]["replicatedJobs"]]
    assert abs(sum("nodeSelector" in pod.get("spec", {}) for pod in pods) - merges) < 10


def test_the_texts_of_large_specs_are_not_all_kept() -> None:
    def large() -> JobSetSpec:
        job = {"name": "x" * 200_000, "template": {"spec": {"template": {}}}}
        return JobSetSpec.from_dict({"replicatedJobs": [job]})

    first, second = large(), large()
    with_overrides(first, [])
    assert with_overrides(first, []) == with_overrides(second, [])

    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None
