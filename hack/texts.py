# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Check texts that neither a compiler nor mkdocs checks: links outside the sites, changelogs, and names of code.

``python -m hack.texts`` prints ``FILE:LINE: PROBLEM`` for each problem and returns 1 if there is one. Problems of words
and of the page of parsers are advice: they are printed too, but do not fail.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from hack import parsers
from hack.mutants import ROOT, Table

LIBRARY: Final = "controller-runtime"
TOOL: Final = "trainerctl"
DOCUMENTS: Final = tuple(
    f"{folder}{pattern}"
    for folder in ("", f"{LIBRARY}/", f"{TOOL}/")
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md")
)
SECTIONS: Final = ("Breaking", "Added", "Changed", "Security", "Fixed")
WORDS: Final = {
    r"\b(?:tells?|told|telling)\b": (1, 0),
    r"\b(?:somebody|nobody|everybody|whoever)\b": (0, 0),
    r"\banew\b": (0, 0),
    r"\bis no (?!longer\b|more\b)": (2, 12),
    r"\bwhat(?:ever)?\b": (15, 35),
}
"""Words, and how often they may occur in documents and in the code before there is advice."""
CODE: Final = ("pkg", "cmd", f"{LIBRARY}/controller_runtime", f"{TOOL}/trainerctl")


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


def words(root: Path) -> Iterator[Problem]:
    """Yield words that Kubernetes' own documentation rarely uses, if there are many; of the files, the newest one."""
    code = [path for folder in CODE for path in root.joinpath(folder).rglob("*.py")]
    for word, limits in WORDS.items():
        for paths, limit in zip((documents(root), code), limits, strict=True):
            found = [
                (path, match)
                for path in sorted(paths, key=lambda path: path.stat().st_mtime)
                for match in re.finditer(word, path.read_text(), re.IGNORECASE)
            ]
            if len(found) > limit:
                path, match = found[-1]
                yield Problem.at(
                    path, match.start(), f"{match[0]!r}: there are {len(found)} such words, not {limit}"
                )


def mutants(root: Path) -> Iterator[Problem]:
    """Yield planted bugs whose text does not occur exactly once in their module."""
    for table in [Table.read(path) for path in sorted((root / "test/sim/mutants").glob("*.toml"))]:
        text = table.file.read_text()
        for mutant in table.mutants:
            module = _module(root, mutant.module)
            try:
                mutant.applied(module.read_text() if module else "")
            except ValueError as error:
                yield Problem.at(table.file, max(text.find(f'"{mutant.name}"'), 0), str(error))


def _module(root: Path, name: str) -> Path | None:
    """Return the file of a module of the manager, the library or the tool."""
    house = {"pkg": root, TOOL: root / TOOL}.get(name.partition(".")[0], root / LIBRARY)
    base = house.joinpath(*name.split("."))
    return next((each for each in (base.with_suffix(".py"), base / "__init__.py") if each.exists()), None)


def _page(root: Path, name: str) -> Path:
    return next(root.glob(f"docs/**/{name}"))


def port_map(root: Path) -> Iterator[Problem]:
    """Yield the modules that the port map and the page of differences name and that do not exist."""
    for path in (_page(root, "port-map.md"), _page(root, "differences.md")):
        for name in re.finditer(r"`((?:pkg|controller_runtime|trainerctl)\.[a-z0-9_.]+)`", path.read_text()):
            if _module(root, name[1]) is None:
                yield Problem.at(path, name.start(), f"no module is called {name[1]}")


def architecture(root: Path) -> Iterator[Problem]:
    """Yield packages without a row, and rows without a package."""
    path = _page(root, "architecture.md")
    pattern = r"^\| `((?:pkg|trainerctl)\.\w+)` \|"
    rows = {row[1]: row.start() for row in re.finditer(pattern, path.read_text(), re.MULTILINE)}
    folders = (*root.glob("pkg/*/__init__.py"), *root.glob(f"{TOOL}/trainerctl/*/__init__.py"))
    for name in sorted({".".join(each.parts[-3:-1]) for each in folders} ^ set(rows)):
        problem = f"no package is called {name}" if name in rows else f"{name} has no row"
        yield Problem.at(path, rows.get(name, 0), problem)


def parser_page(root: Path) -> Iterator[Problem]:
    """Yield the problems of the page of parsers."""
    page = _page(root, "parsers.md")
    yield from (Problem(page, 1, text) for text in parsers.problems(root, page.read_text()))


CHECKS: Final = (links, make_targets, changelogs, mutants, port_map, architecture)
ADVICE: Final = (words, parser_page)


def main() -> int:
    """Print the problems and the advice; return 1 if there is a problem."""
    for check in ADVICE:
        for path, line, text in check(ROOT):
            sys.stdout.write(f"{path.relative_to(ROOT)}:{line}: advice: {text}\n")
    problems = [each for check in CHECKS for each in check(ROOT)]
    for path, line, text in problems:
        sys.stdout.write(f"{path.relative_to(ROOT)}:{line}: {text}\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
