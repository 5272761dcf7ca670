# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Write all generated files: ``python -m hack``. The chart copies files of ``config``, which are written first."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from controller_runtime.tools import files

from hack import chart, manifests, rbac, reference, release


def generated(root: Path) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """Yield folders, and the texts of their generated files."""
    yield root / "config/crd", manifests.render()
    yield root / "config", rbac.render()
    yield root / "charts/kubeflow-trainer", chart.files()
    yield root, {"SECURITY-INSIGHTS.yml": release.insights(root)}
    yield root / "docs/reference", reference.pages()


if __name__ == "__main__":
    for folder, texts in generated(release.ROOT):
        sys.stdout.writelines(f"wrote {path}\n" for path in files.write(folder, texts))
