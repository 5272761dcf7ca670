# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Write Markdown for the generated pages, in which cells contain pipes and the text says that it is generated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

NOTE: Final = "<!-- Generated from the code by `make manifests`; do not edit. -->\n"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; cells may contain pipes."""
    head = list(head)
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in (head, *rows)]
    return "".join((lines[0], "|---" * len(head) + "|\n", *lines[1:]))
