# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Prometheus beside a cluster: it scrapes the manager, evaluates the shipped alerts, and shows the dashboard's queries.

The page ``/consoles/dashboard.html`` has the panels of ``config/prometheus/dashboard.json`` as tables.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

from controller_runtime.envtest import (
    HOST,
    Component,
    Probe,
    private_directory,
    read_manifests,
    write_private,
)
from controller_runtime.machinery import JSON, yaml
from pkg import shipped

NAME: Final = "prometheus"
PAGE: Final = "consoles/dashboard.html"
_INTERVAL: Final = "1s"
_RATE: Final = "1m"


def component(program: Path, directory: Path, port: int, target: int) -> Component:
    """Write the files of Prometheus below ``directory``. Return the component, which scrapes the port ``target``."""
    home = private_directory(directory / NAME)
    config: dict[str, JSON] = {
        "global": {
            "scrape_interval": _INTERVAL,
            "scrape_timeout": _INTERVAL,
            "evaluation_interval": _INTERVAL,
        },
        "rule_files": [str(write_private(home / "rules.yaml", yaml.dump(rules())))],
        "scrape_configs": [{"job_name": "trainer", "static_configs": [{"targets": [f"{HOST}:{target}"]}]}],
    }
    consoles = private_directory(home / "consoles")
    write_private(consoles / Path(PAGE).name, page())
    flags = {
        "config.file": write_private(home / "prometheus.yaml", yaml.dump(config)),
        "storage.tsdb.path": home / "data",
        "storage.tsdb.retention.size": "256MB",
        "web.listen-address": f"{HOST}:{port}",
        "web.console.templates": consoles,
        "web.cors.origin": "^$",  # by default, a page of any site in the user's browser can read the responses
    }
    argv = [str(program), *(f"--{flag}={value}" for flag, value in flags.items())]
    return Component(NAME, argv, Probe(f"http://{HOST}:{port}/-/ready"))


def rules() -> JSON:
    """Return the shipped alerts in the format that Prometheus reads."""
    (found,) = read_manifests(_folder() / "rules.yaml")
    spec: JSON = found["spec"]
    return spec


def queries() -> Iterator[tuple[str, list[str]]]:
    """Yield the title of each panel of the shipped dashboard, and its queries."""
    for panel in json.loads((_folder() / "dashboard.json").read_text())["panels"]:
        texts = [target["expr"] for target in panel.get("targets", ())]
        if texts:
            yield (
                panel["title"],
                [each.replace("$__rate_interval", _RATE).replace("$controller", ".*") for each in texts],
            )


def page() -> str:
    """Return a template for Prometheus: a page with the dashboard's queries that reloads itself."""
    panels = "".join(
        f"<h2>{html.escape(title)}</h2>\n" + "".join(map(_table, texts)) for title, texts in queries()
    )
    return (
        '<!doctype html>\n<meta charset="utf-8">\n<meta http-equiv="refresh" content="5">\n'
        "<title>Kubeflow Trainer</title>\n<h1>Kubeflow Trainer</h1>\n" + panels
    )


def _table(text: str) -> str:
    link = f'<a href="/query?g0.expr={quote(text)}&amp;g0.tab=graph">{html.escape(text)}</a>'
    row = "<tr><td>{{ range $k, $v := .Labels }}{{ $k }}={{ $v }} {{ end }}</td><td>{{ .Value }}</td></tr>"
    none = "<tr><td>no data</td></tr>"
    return f"<p>{link}</p>\n<table>{{{{ range query `{text}` }}}}{row}{{{{ else }}}}{none}{{{{ end }}}}</table>\n"


def _folder() -> Path:
    return shipped.config_directory() / "prometheus"
