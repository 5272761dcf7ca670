# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of ``python -m controller_runtime``."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

PROGRAM: Final = "python -m controller_runtime"
_FAILED: Final = 1

_OUTPUT_HELP: Final = "the {noun} to write; standard output by default"
_CHECK_HELP: Final = "write nothing; exit with 1 if --output is not up to date"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 1 for errors in files and modules, 2 for command-line errors."""
    arguments = _parse(argv)
    try:
        code: int = arguments.run(arguments)
    except (ValueError, TypeError, OSError) as error:
        sys.stderr.write(f"{PROGRAM} {arguments.command}: {error}\n")
        return _FAILED
    return code


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    arguments, rest = parser.parse_known_args(argv)
    # argparse does not accept an optional positional after options: new NAME --kind KIND DIR.
    if arguments.command == "new" and arguments.directory is None and rest and not rest[0].startswith("-"):
        arguments.directory = Path(rest.pop(0))
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Tools for the authors of operators.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    crd = commands.add_parser("crd", help="write the CustomResourceDefinitions of kinds")
    crd.add_argument("modules", nargs="+", metavar="MODULE[:KIND]", help="a module that defines kinds")
    _add_output(crd, "folder")
    crd.set_defaults(run=_crd)
    _add_kinds(
        commands.add_parser("kinds", help="write typed kinds from CustomResourceDefinitions or OpenAPI")
    )
    rbac = commands.add_parser("rbac", help="write the ClusterRole and Roles of +kubebuilder:rbac comments")
    rbac.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a Python file, or a folder of them"
    )
    rbac.add_argument("--name", required=True, help="name of the roles")
    _add_output(rbac, "file")
    rbac.set_defaults(run=_rbac)
    webhook = commands.add_parser(
        "webhook", help="write the webhook configurations of +kubebuilder:webhook comments"
    )
    webhook.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="a Python file, or a folder of them"
    )
    webhook.add_argument("--name", required=True, help="prefix of the configurations' names")
    webhook.add_argument(
        "--service", required=True, metavar="NAMESPACE/NAME", help="the webhook server's Service"
    )
    _add_output(webhook, "file")
    webhook.set_defaults(run=_webhook)
    _add_new(commands.add_parser("new", help="write the project of a new operator"))
    return parser


def _add_output(parser: argparse.ArgumentParser, noun: str) -> None:
    parser.add_argument(
        "--output", "-o", type=Path, metavar=noun.upper(), help=_OUTPUT_HELP.format(noun=noun)
    )
    parser.add_argument("--check", action="store_true", help=_CHECK_HELP)


def _add_kinds(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a module with typed kinds for each API version, from CustomResourceDefinitions, from OpenAPI v3 "
        "documents or from the kinds that a cluster serves."
    )
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="a file in YAML or JSON")
    parser.add_argument("--cluster", action="store_true", help="read the OpenAPI of the kubeconfig's cluster")
    parser.add_argument("--context", help="the context of the kubeconfig; the current one by default")
    parser.add_argument(
        "--group", action="append", default=[], help="only kinds of this API group; repeatable"
    )
    parser.add_argument("--kind", action="append", default=[], help="only this kind; repeatable")
    parser.add_argument(
        "--partial",
        action="store_true",
        help="require no field, so that apply configurations may leave out any",
    )
    _add_output(parser, "folder")
    parser.set_defaults(run=_kinds)


def _add_new(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write a working operator: a kind, its controller, a webhook, tests, manifests."
    parser.add_argument("name", metavar="NAME", help="name of the project, e.g. website-operator")
    parser.add_argument("directory", nargs="?", type=Path, metavar="DIR", help="a new or empty folder (NAME)")
    parser.add_argument("--kind", required=True, help="the kind to reconcile, e.g. Website")
    parser.add_argument("--group", default="example.com", help="its API group (%(default)s)")
    parser.add_argument("--version", default="v1alpha1", help="its API version (%(default)s)")
    parser.add_argument("--plural", default="", help="its plural name in the API; derived from the kind")
    parser.add_argument("--no-webhook", dest="webhook", action="store_false", help="leave out the webhook")
    parser.set_defaults(run=_new)


def _crd(arguments: argparse.Namespace) -> int:
    from . import crd  # pydantic is not needed for the other commands

    kinds = [kind for module in arguments.modules for kind in crd.load(module)]
    files = crd.manifests(dict.fromkeys(kinds))
    if arguments.output is None:
        return _print("".join(files.values()), arguments.check)
    return _write(arguments.output, files, arguments.check)


def _kinds(arguments: argparse.Namespace) -> int:
    from . import kinds

    if bool(arguments.files) == arguments.cluster:
        raise ValueError("either files or --cluster must be given")
    if arguments.cluster and not (arguments.group or arguments.kind):
        raise ValueError("--cluster needs --group or --kind")
    if arguments.cluster:
        import asyncio

        sources = asyncio.run(kinds.of_cluster(groups=arguments.group, context=arguments.context))
    else:
        sources = [source for path in arguments.files for source in kinds.read(path)]
    files = kinds.modules(
        kinds.select(sources, kinds=arguments.kind, groups=arguments.group), partial=arguments.partial
    )
    if arguments.output is None:
        texts = [text for name, text in files.items() if not name.endswith("__init__.py")]
        if len(texts) > 1:
            raise ValueError(
                f"--output is needed: the kinds have {len(texts)} API versions, each with a module"
            )
        return _print(texts[0], arguments.check)
    return _write(arguments.output, files, arguments.check)


def _rbac(arguments: argparse.Namespace) -> int:
    from . import rbac

    grants = rbac.collect(arguments.paths)
    if not grants:
        _note_missing_markers(arguments)
    return _write_one(arguments, rbac.manifests(arguments.name, grants))


def _webhook(arguments: argparse.Namespace) -> int:
    from . import webhooks

    namespace, slash, name = arguments.service.partition("/")
    if not (namespace and slash and name):
        raise ValueError(f"--service {arguments.service}: must be NAMESPACE/NAME")
    service = webhooks.Service(namespace, name, arguments.name)
    configurations = webhooks.collect(arguments.paths)
    if not configurations:
        _note_missing_markers(arguments)
    return _write_one(arguments, webhooks.manifests(configurations, service))


def _note_missing_markers(arguments: argparse.Namespace) -> None:
    paths = ", ".join(map(str, arguments.paths))
    sys.stderr.write(
        f"{PROGRAM} {arguments.command}: no +kubebuilder:{arguments.command} comments in {paths}\n"
    )


def _new(arguments: argparse.Namespace) -> int:
    from . import new

    options = {field.name: getattr(arguments, field.name) for field in dataclasses.fields(new.Project)}
    project = new.Project(**options)
    directory = arguments.directory or Path(arguments.name)
    written = new.create(project, directory)
    sys.stdout.write(f"wrote {len(written)} files to {directory}; its README.md describes the next steps\n")
    return 0


def _write_one(arguments: argparse.Namespace, text: str) -> int:
    output: Path | None = arguments.output
    if output is None:
        return _print(text, arguments.check)
    return _write(output.parent, {output.name: text}, arguments.check)


def _write(directory: Path, texts: Mapping[str, str], check: bool) -> int:
    from . import files

    if not check:
        for path in files.write(directory, texts):
            sys.stdout.write(f"wrote {path}\n")
        return 0
    paths = files.stale(directory, texts)
    for path in paths:
        sys.stderr.write(f"{path} is not up to date\n")
    return _FAILED if paths else 0


def _print(text: str, check: bool) -> int:
    if check:
        raise ValueError("--check needs --output")
    sys.stdout.write(text)
    return 0
