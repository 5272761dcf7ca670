# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Run recorded cases with the product's code and print every difference.

    replay.py FILE… [--emit FILE] [--family PREFIX …] [--rules RELEASE] [--profile 2.1|2.3] [--no-wait]

The last line is ``N passed, N failed``; the exit code is 1 if a case failed, 2 if a file is not a vector file.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # a script imports the product's packages from two folders above
    sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

import msgspec
from controller_runtime.log import captured as capture_logs
from replayer import cases, compare, ops


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay the cases of the command line; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        found = list(cases.load(options.files, options.family, options.profile, options.rules))
    except cases.BadVectorFileError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    with capture_logs():  # standard output is only for the result
        results = asyncio.run(_replay(found))
    if options.emit is not None:
        emitted = [
            {"op": case.op, "name": case.name, "got": compare.normalised(got)} for case, got, _ in results
        ]
        options.emit.write_bytes(msgspec.json.format(msgspec.json.encode(emitted)))
    failed = 0
    for case, _, wrong in results:
        if wrong:
            failed += 1
            _say(f"FAIL {case.name} ({case.op})", *(f"    {line}" for line in wrong))
    _say(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


async def _replay(found: list[cases.Case]) -> list[tuple[cases.Case, dict[str, Any], list[str]]]:
    results = []
    for case in found:
        try:
            got = await ops.answer(case)
        except ops.UnknownOpError as error:
            results.append((case, {"error": str(error)}, [str(error)]))
            continue
        results.append((case, got, compare.differences(case, got)))
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="replay.py", description="Replay recorded cases.")
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="a vector file")
    parser.add_argument("--emit", metavar="FILE", type=Path, help="write the answers to FILE, as JSON")
    parser.add_argument(
        "--family",
        metavar="PREFIX",
        action="append",
        default=[],
        help="replay only the cases named PREFIX and those below it; may be repeated",
    )
    parser.add_argument(
        "--rules",
        metavar="RELEASE",
        help="the release of the recorded pod grouper, for cases that do not name one: v0.13 or v0.17",
    )
    parser.add_argument(
        "--profile",
        choices=cases.PROFILES,
        help="the compatibilityVersion of the answers; by default, the fields in a file decide",
    )
    parser.add_argument(
        "--no-wait", action="store_true", help="accepted; cases run on a fixed clock and never wait"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
