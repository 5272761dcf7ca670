# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Check texts that neither a compiler nor mkdocs checks: links outside the sites, names of targets, and changelogs.

``python -m hack.texts`` prints ``FILE:LINE: PROBLEM`` for each problem and returns 1 if there is one. mkdocs checks
links only between pages of one site, and no tool knows our make targets and the sections of changelogs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
LIBRARY: Final = "controller-runtime"
TOOL: Final = "trainerctl"
DOCUMENTS: Final = tuple(
    f"{folder}{pattern}"
    for folder in ("", f"{LIBRARY}/", f"{TOOL}/")
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md")
)
SECTIONS: Final = ("Breaking", "Added", "Changed", "Security", "Fixed")


class Problem(NamedTuple):
    """A problem at a line of a file."""

    path: Path
    line: int
    text: str

    @classmethod
    def at(cls, path: Path, position: int, text: str) -> Problem:
        """Return a problem at a position in the text of a file."""
        return cls(path, path.read_text().count("\n", 0, position) + 1, text)


def documents(root: Path) -> list[Path]:
    """Return the documents of the manager, of the library and of the tool."""
    return sorted({path for pattern in DOCUMENTS for path in root.glob(pattern)})


def links(root: Path) -> Iterator[Problem]:
    """Yield those relative links of documents that lead to no file."""
    for path in documents(root):
        for link in re.finditer(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            if not (path.parent / link[1]).exists():
                yield Problem.at(path, link.start(), f"the link leads to no file: {link[1]}")


def make_targets(root: Path) -> Iterator[Problem]:
    """Yield the make targets that documents name and that do not exist.

    The library's documents may also name targets of a project that ``python -m controller_runtime new`` writes.
    """
    ours = _targets(root / "Makefile")
    template = root / LIBRARY / "controller_runtime/tools/templates/Makefile.tmpl"
    theirs = _targets(root / LIBRARY / "Makefile") | _targets(template)
    for path in documents(root):
        known = theirs if path.is_relative_to(root / LIBRARY) else ours
        for command in re.finditer(r"(?:^|`|&& )make ((?:[a-z-]+ ?)+)", path.read_text(), re.MULTILINE):
            for word in command[1].split():
                if word not in known:
                    yield Problem.at(path, command.start(1), f"make has no target {word}")


def _targets(makefile: Path) -> set[str]:
    return set(re.findall(r"^([a-z-]+):.*##", makefile.read_text(), re.MULTILINE))


def changelogs(root: Path) -> Iterator[Problem]:
    """Yield the lines of changelogs that are out of place or repeated: Git merges changelogs by union."""
    for path in (root / "CHANGELOG.md", root / LIBRARY / "CHANGELOG.md"):
        releases, sections, seen = 0, [""], set[str]()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if line.startswith("## "):
                pattern = r"## \d+\.\d+\.\d+ - \d{4}-\d{2}-\d{2}" if releases else "## Unreleased"
                if not re.fullmatch(pattern, line):
                    yield Problem(
                        path, number, f"this must be {'a version and its date' if releases else 'Unreleased'}"
                    )
                releases, sections = releases + 1, []
            elif line.startswith("### "):
                sections.append(line.removeprefix("### "))
                if sections != [each for each in SECTIONS if each in sections]:
                    yield Problem(
                        path, number, f"each section occurs once, in the order {', '.join(SECTIONS)}"
                    )
            elif line.startswith("- ") and not sections:
                yield Problem(path, number, "an entry must be below a section")
            if line and not line.startswith("###") and line in seen:
                yield Problem(path, number, "this line also occurs above")
            seen.add(line)


CHECKS: Final = (links, make_targets, changelogs)


def main() -> int:
    """Print the problems; return 1 if there is one."""
    problems = [each for check in CHECKS for each in check(ROOT)]
    for path, line, text in problems:
        sys.stdout.write(f"{path.relative_to(ROOT)}:{line}: {text}\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
