# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The manager exports every metric that the dashboards and alerts use."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from controller_runtime.metrics import REGISTRY

import pkg.metrics
import pkg.util.cert

ROOT = Path(__file__).parents[3]
PROMETHEUS = ROOT / "config" / "prometheus"
# The names of metrics: all have one of these prefixes.
NAME = re.compile(
    r"\b((?:kubeflow_trainer|controller_runtime|workqueue|rest_client|leader_election|certwatcher|process)_\w+)"
)


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PROMETHEUS / "dashboard.json").read_text())
    return found


def alerts() -> list[dict[str, Any]]:
    (rule,) = yaml.safe_load_all((PROMETHEUS / "rules.yaml").read_text())
    return [each for group in rule["spec"]["groups"] for each in group["rules"]]


def expressions() -> list[str]:
    panels = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    return panels + [each["expr"] for each in alerts()]


def exported() -> set[str]:
    """Return the names of all series, including those of a family that has no samples until a kind is degraded."""
    names = {pkg.metrics.KIND_DEGRADED.describe()[0].name}
    for family in REGISTRY.collect():
        names.add(family.name)
        names |= {sample.name for sample in family.samples}
        if family.type == "counter":
            names.add(f"{family.name}_total")
        if family.type == "histogram":
            names |= {f"{family.name}_{part}" for part in ("bucket", "count", "sum")}
    return names


@pytest.mark.parametrize("expression", expressions())
def test_the_manager_exports_what_is_asked_for(expression: str) -> None:
    asked = set(NAME.findall(expression))
    assert asked
    assert asked <= exported()


def test_a_series_that_nobody_exports_would_be_found() -> None:
    assert not set(NAME.findall("sum(kubeflow_trainer_trainjob)")) <= exported()


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


def test_each_alert_names_a_page_that_exists() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text()
    anchors = {
        re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }
    for alert in alerts():
        page, anchor = alert["annotations"]["runbook"].split("#")
        assert page == "docs/troubleshooting.md"
        assert anchor in anchors, alert["alert"]


def test_one_setting_of_the_installation_guide_makes_the_runbooks_absolute_urls() -> None:
    (command,) = re.findall(
        r"^kubectl kustomize config/overlays/monitoring (.*)$",
        (ROOT / "docs/install.md").read_text(),
        re.MULTILINE,
    )
    (expression,) = re.findall(r"sed '([^']*)'", command)
    edited = subprocess.run(
        ["sed", expression, PROMETHEUS / "rules.yaml"], capture_output=True, text=True, check=True
    ).stdout
    (rule,) = yaml.safe_load_all(edited)
    for alert in (each for group in rule["spec"]["groups"] for each in group["rules"]):
        assert re.fullmatch(r"https://\S+/troubleshooting\.html#[a-z-]+", alert["annotations"]["runbook_url"])
