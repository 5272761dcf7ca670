# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The commands, their flags, and the function that runs each command.

A function is named as ``module:name``. :mod:`trainerctl.cli.execution` imports the module only to run the command:
help, ``--version`` and usage errors need no command. By default, the function of the command ``NAME`` is
``trainerctl.cli.NAME:NAME_command``; its flags may set another function.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from trainerctl.cli import flagtypes
from trainerctl.localcluster.names import DEFAULT_NAME

HELP: Final = "trainerctl.cli.help:show"
_FILES: Final = "YAML or JSON files, folders of such files, or - for standard input"

Add = Callable[[argparse.ArgumentParser], None]
Command = tuple[str, str, Add | None]
"""The name of a command, what it does, and the function that adds its flags."""


def add_commands(parser: argparse.ArgumentParser, commands: Iterable[Command], module: str = "") -> None:
    """Add commands and their flags; their functions are in ``module`` or, if it is empty, in modules of their own."""
    group = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for name, about, flags in commands:
        command = group.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.")
        command.set_defaults(function=f"trainerctl.cli.{module or name}:{name}_command")
        if flags is not None:
            flags(command)


def _demo(parser: argparse.ArgumentParser) -> None:
    nodes = flagtypes.integer(1, 100)
    parser.add_argument(
        "--nodes", type=nodes, default=3, metavar="N", help="nodes of the TrainJob (default 3)"
    )
    _timeout(parser, 60, "time limit of the TrainJob")
    parser.set_defaults(cleans_up=True)


def _run(parser: argparse.ArgumentParser) -> None:
    _cluster_name(parser, "local cluster")
    parser.add_argument(
        "--kubeconfig",
        help="run against the cluster of this kubeconfig, with its credentials, instead of a local cluster",
    )
    parser.epilog = (
        "All other flags, and all arguments after --, are passed to trainer-controller-manager. With --kubeconfig the "
        "manager runs with --webhooks=false, because the cluster's API server usually cannot reach this machine; add "
        "--webhooks to serve the webhooks nevertheless."
    )
    parser.set_defaults(passes_flags=True)


def _render(parser: argparse.ArgumentParser) -> None:
    _files(parser, outputs=("yaml", "json", "table"))
    _runtimes_from_cluster(parser)
    _configuration(parser)


def _explain(parser: argparse.ArgumentParser) -> None:
    _files(parser, outputs=("text", "json", "yaml"))
    _runtimes_from_cluster(parser)
    _configuration(parser)


def _validate(parser: argparse.ArgumentParser) -> None:
    _files(parser, outputs=("text", "json"))
    _configuration(parser)
    parser.add_argument(
        "--server",
        action="store_true",
        help="ask the API server of the kubeconfig by dry runs; runtimes in the files are then not used for TrainJobs",
    )
    parser.add_argument(
        "--kubeconfig",
        help="kubeconfig of the cluster for --server (default: the one that kubectl uses); without --server, read "
        "runtimes and PriorityClasses that the files lack from this cluster",
    )
    parser.add_argument("--context", help="context of the kubeconfig (default: its current context)")


def _convert(parser: argparse.ArgumentParser) -> None:
    _filenames(parser, _FILES)
    parser.add_argument(
        "--to",
        choices=("2.1", "2.3"),
        required=True,
        help="release of Trainer to rewrite the objects for: 2.1, or 2.3 for v2.2 and v2.3",
    )
    _output(parser, ("yaml", "json"))


def _group(parser: argparse.ArgumentParser) -> None:
    _files(parser, outputs=("text", "json", "yaml"))
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="Configuration file of the manager, with the settings of the pod grouper (default: default settings)",
    )
    parser.add_argument(
        "--rules",
        choices=("v0.13", "v0.17"),
        help="KAI-Scheduler release whose rules apply (default: the release that --config names, else that of the "
        "PodGroup CRD in the files, else v0.13)",
    )


def _crds(parser: argparse.ArgumentParser) -> None:
    _output(parser, ("yaml", "json"))
    parser.add_argument(
        "--apply", action="store_true", help="apply the CRDs (server-side) instead of printing them"
    )
    parser.add_argument(
        "--kubeconfig", help="kubeconfig of the cluster for --apply (default: the one that kubectl uses)"
    )


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="shell that runs the script")


def _help(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", metavar="COMMAND", nargs="*", help="command, such as cluster up")
    parser.set_defaults(function=HELP)


def _why(parser: argparse.ArgumentParser) -> None:
    _named(parser, ("text", "json"))
    parser.epilog = (
        "The exit code is 0 if the TrainJob runs, starts or is complete, 1 if something is wrong, and 3 if it waits: "
        "for a person, a queue, or free capacity."
    )


def _get(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        type=flagtypes.name,
        help="TrainJob to show with its JobSet, Jobs and pods",
    )
    parser.add_argument(
        "-A", "--all-namespaces", action="store_true", help="list the TrainJobs of all namespaces"
    )
    parser.add_argument(
        "-w",
        "--watch",
        action="store_true",
        help="keep showing changes; with NAME, until the TrainJob has ended",
    )
    _live(parser, ("table", "json", "yaml", "name"))


def _describe(parser: argparse.ArgumentParser) -> None:
    _named(parser)


def _wait(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _named(parser)
    states = ("complete", "failed", "finished", "running", "suspended", "deleted")
    add(
        "--for",
        dest="state",
        type=str.lower,
        choices=states,
        default="complete",
        metavar="STATE",
        help=f"state to wait for: {', '.join(states)} (default complete)",
    )
    _timeout(parser, 3600)
    parser.epilog = (
        "The exit code is 0 if the state was reached, 1 if it cannot be reached any more, and 3 if the time limit has "
        "passed."
    )


def _progress(parser: argparse.ArgumentParser) -> None:
    _named(parser, ("table", "json"))
    parser.add_argument(
        "--plot",
        metavar="FILE",
        type=flagtypes.picture,
        help="draw the metrics over time into this .svg file, again after each report; .png needs the extra "
        "trainerctl[png]",
    )
    parser.set_defaults(function="trainerctl.cli.follow:progress_command")
    parser.epilog = (
        "The command ends when the TrainJob has ended. The exit code is 0 if it is complete and has reported progress, "
        "else 1. With -o json, each report is one line."
    )


def _events(parser: argparse.ArgumentParser) -> None:
    _named(parser, ("table", "json"))
    parser.add_argument(
        "--types",
        nargs="+",
        action="extend",
        choices=("Normal", "Warning"),
        help="types of events to show (default all)",
    )


def _logs(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _named(parser)
    add("--step", help="replicated job whose pods' logs to print (default: the step that trains)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--rank",
        type=flagtypes.integer(0, 1 << 20),
        metavar="N",
        help="rank of the pod in its step (default: the rank that failed first, or 0)",
    )
    which.add_argument(
        "--all",
        action="store_true",
        help="print the logs of all pods of the step; each line starts with step and rank",
    )
    add("-c", "--container", help="container of the pods (default: the container that does the work)")
    _lines(parser, "the TrainJob ends; restarted containers are followed too")
    add("--previous", action="store_true", help="print the log of the previous run of the container")


def _exec(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    _named(parser)
    add("command", metavar="COMMAND", nargs="+", help="command and its arguments, after --")
    add("--step", metavar="STEP", help="replicated job of the pod (default: the one that trains)")
    add(
        "--rank",
        type=flagtypes.integer(0, 1 << 20),
        default=0,
        metavar="N",
        help="rank of the pod in its step (default 0)",
    )
    add("-c", "--container", metavar="NAME", help="container (default: the one that does the work)")
    add("-i", "--stdin", action="store_true", help="pass the standard input to the command")
    add("-t", "--tty", action="store_true", help="give the command a terminal")
    parser.set_defaults(cleans_up=True)
    parser.epilog = (
        "The exit code is that of the command, or 1 if it cannot be run. This needs the extra: pip install "
        "'trainerctl[exec]'."
    )


def _change(verb: str) -> Add:
    def add_flags(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "names", metavar="NAME", nargs="+", type=flagtypes.name, help=f"names of the TrainJobs to {verb}"
        )
        _live(parser)
        parser.set_defaults(function=f"trainerctl.cli.change:{verb}_command")

    return add_flags


def _migrate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-A", "--all-namespaces", action="store_true", help="rewrite the TrainJobs of all namespaces")
    add("--dry-run", action="store_true", help="let the API server check the changes, and store none")
    _live(parser)
    parser.epilog = (
        "The exit code is 1 if a TrainJob could not be rewritten. Running the command again does no harm."
    )


def _diff(parser: argparse.ArgumentParser) -> None:
    _filenames(parser, "YAML or JSON files with the changed runtimes, or - for standard input")
    _live(parser, about="namespace for TrainingRuntimes that do not set one")
    _configuration(parser)
    parser.epilog = (
        "The exit code is 1 if the objects of a TrainJob would change, or if the changed runtime would make a TrainJob "
        "invalid; else it is 0."
    )


def _mcp(parser: argparse.ArgumentParser) -> None:
    _live(parser)
    parser.epilog = "The tools only read. This needs the extra: pip install 'trainerctl[mcp]'."


def _cluster(parser: argparse.ArgumentParser) -> None:
    """Add the commands of ``cluster`` and their flags."""
    parser.set_defaults(function=None, cleans_up=True)
    add_commands(parser, CLUSTER_COMMANDS, module="cluster")


def _cluster_name(parser: argparse.ArgumentParser, about: str = "cluster") -> None:
    parser.add_argument(
        "--name",
        type=flagtypes.cluster,
        default=DEFAULT_NAME,
        help=f"name of the {about} (default '{DEFAULT_NAME}')",
    )


def _cluster_start(parser: argparse.ArgumentParser) -> None:
    _cluster_name(parser)
    _timeout(parser, about="time limit of the start")


def _timeout(parser: argparse.ArgumentParser, seconds: int = 120, about: str = "time limit") -> None:
    about = f"{about} (default {seconds})"
    parser.add_argument("--timeout", type=flagtypes.seconds, default=seconds, metavar="SECONDS", help=about)


def _lines(parser: argparse.ArgumentParser, until: str) -> None:
    add = parser.add_argument
    add(
        "--tail",
        type=flagtypes.integer(0, 1 << 30),
        metavar="N",
        help="print only the last N lines of each log (default: all lines)",
    )
    add("-f", "--follow", action="store_true", help=f"print new lines until {until}")


def _cluster_logs(parser: argparse.ArgumentParser) -> None:
    about = "components, by the names that trainerctl cluster status prints (default all)"
    parser.add_argument("components", metavar="COMPONENT", nargs="*", help=about)
    _lines(parser, "the command is interrupted")
    _cluster_name(parser)


def _cluster_up(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--nodes", type=flagtypes.integer(0, 5000), metavar="N", help="number of nodes (default 4)")
    add(
        "--gpus",
        type=flagtypes.integer(0, 5000),
        metavar="N",
        help="GPUs per node (default 8, or 0 with --run-processes)",
    )
    add(
        "--run-processes",
        action="store_true",
        help="run the containers' commands as processes of this machine, without isolation",
    )
    add(
        "--image",
        type=flagtypes.image,
        action="append",
        default=[],
        metavar="IMAGE=FOLDER",
        help="with --run-processes: folder with the programs of an image, e.g. the bin folder of a virtual"
        " environment; can be repeated (default: the folder of the Python that runs trainerctl)",
    )
    add("--without-manager", action="store_true", help="do not start the manager")
    add(
        "--coscheduling",
        action="store_true",
        help="use the scheduler of scheduler-plugins, which schedules gangs, instead of kube-scheduler",
    )
    add(
        "--workloads",
        action="store_true",
        help="enable Kubernetes' own gang scheduling: the feature gates and the API (1.35 and newer)",
    )
    add(
        "--prometheus",
        action="store_true",
        help="run Prometheus, with a page that shows the queries of the shipped dashboard",
    )
    add(
        "--feature-gates",
        metavar="NAME=BOOL,...",
        help="feature gates of the manager, written as for its own flag (default: the default of each gate)",
    )
    add(
        "--compatibility-version",
        choices=("2.1", "2.3", "2.4"),
        help="release of Trainer like which the manager behaves (default 2.1)",
    )
    _releases(parser)
    add(
        "--kai-scheduler",
        metavar="PATH",
        help="scheduler program of KAI-Scheduler, run beside the other scheduler; the manager groups its pods",
    )
    add("--kai-binder", metavar="PATH", help="binder program of KAI-Scheduler; --kai-scheduler needs it")
    add(
        "--kai-crds",
        metavar="FOLDER",
        help="folder with the CRDs of the release of --kai-scheduler (default: CRDs of v0.17)",
    )
    add("--recreate", action="store_true", help="replace an existing cluster and all its objects")
    _timeout(parser, about="time limit of the start")
    _cluster_name(parser)


def _releases(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubernetes",
        metavar="RELEASE",
        help="release line of Kubernetes: 1.34, 1.35, 1.36 or 1.37 (default 1.35)",
    )
    parser.add_argument(
        "--jobset", metavar="RELEASE", help="release line of JobSet: 0.10, 0.11 or 0.12 (default 0.10)"
    )


CLUSTER_COMMANDS: Final[tuple[Command, ...]] = (
    ("up", "start the cluster and leave it running; an existing cluster keeps its objects", _cluster_up),
    ("down", "stop the cluster and remove it with all its objects", _cluster_name),
    ("stop", "stop the cluster and keep its objects", _cluster_name),
    ("start", "start a stopped cluster with its objects", _cluster_start),
    ("logs", "print the logs of the cluster's components", _cluster_logs),
    ("status", "show the state of each component; exit code 1 unless all are healthy", _cluster_name),
    ("list", "list the clusters", None),
    ("build", "build the programs that the cluster needs, and print their paths", _releases),
)


COMMANDS: Final[tuple[Command, ...]] = (
    ("cluster", "manage local clusters: a real control plane with simulated GPU nodes", _cluster),
    ("demo", "run one TrainJob to completion on a temporary local cluster", _demo),
    ("run", "run the manager against a local cluster or a kubeconfig", _run),
    ("render", "print the objects that the manager would create for TrainJobs", _render),
    ("explain", "show stage by stage how TrainJobs become objects", _explain),
    ("validate", "print what an API server would answer to TrainJobs and runtimes", _validate),
    ("convert", "rewrite TrainJobs and runtimes of Trainer v2.1 for v2.3, or back", _convert),
    ("group", "show the group that the pod grouper assigns to each pod, and why", _group),
    ("crds", "print or apply the CRDs", _crds),
    ("get", "list TrainJobs, or show one with its JobSet, Jobs and pods", _get),
    ("why", "explain why a TrainJob does not run: the cause, its evidence, and the remedy", _why),
    ("describe", "show the state of a TrainJob, its objects and their events on one page", _describe),
    ("events", "print the events of a TrainJob and of all objects that belong to it", _events),
    ("logs", "print the logs of a TrainJob's pods, by step and rank", _logs),
    ("exec", "run a command in a container of a TrainJob", _exec),
    ("progress", "print the progress that a TrainJob reports, and draw its metrics over time", _progress),
    ("wait", "wait until a TrainJob reaches a state", _wait),
    ("diff", "show which TrainJobs of a cluster a changed runtime affects, and how", _diff),
    ("suspend", "suspend TrainJobs; their pods are deleted", _change("suspend")),
    ("resume", "resume suspended TrainJobs", _change("resume")),
    ("delete", "delete TrainJobs with all their objects", _change("delete")),
    ("migrate", "rewrite stored numProcPerNode for clients of Trainer v2.2 and later", _migrate),
    (
        "mcp",
        "let an assistant ask the reading commands, over the Model Context Protocol on standard input",
        _mcp,
    ),
    ("completion", "print a shell script that completes commands, flags and TrainJobs", _completion),
    ("help", "show the help of a command, with examples", _help),
)


def _files(parser: argparse.ArgumentParser, *, outputs: Sequence[str]) -> None:
    _filenames(parser, _FILES)
    parser.add_argument(
        "-n",
        "--namespace",
        type=flagtypes.namespace,
        help="namespace for objects that do not set one (default: the namespace of the context if a cluster is read, "
        "else 'default')",
    )
    _output(parser, outputs)


def _output(parser: argparse.ArgumentParser, outputs: Sequence[str]) -> None:
    parser.add_argument(
        "-o", "--output", choices=outputs, default=outputs[0], help=f"output format (default {outputs[0]})"
    )


def _runtimes_from_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        help="read runtimes missing from the files from this kubeconfig's cluster (default: the shipped runtimes)",
    )
    parser.add_argument(
        "--context",
        help="context of the kubeconfig (default: its current context); alone, of the kubeconfig that kubectl uses",
    )


def _named(parser: argparse.ArgumentParser, outputs: Sequence[str] = ()) -> None:
    parser.add_argument("name", metavar="NAME", type=flagtypes.name, help="name of the TrainJob")
    _live(parser, outputs)


def _live(parser: argparse.ArgumentParser, outputs: Sequence[str] = (), about: str = "namespace") -> None:
    add = parser.add_argument
    add(
        "-n",
        "--namespace",
        type=flagtypes.namespace,
        help=f"{about} (default: the namespace of the kubeconfig's context)",
    )
    add("--kubeconfig", help="kubeconfig of the cluster (default: the one that kubectl uses)")
    add("--context", help="context of the kubeconfig (default: its current context)")
    if outputs:
        _output(parser, outputs)


def _filenames(parser: argparse.ArgumentParser, about: str) -> None:
    """Add the required flag ``--filename``. It can be repeated, and each one takes one or more files."""
    parser.add_argument(
        "-f",
        "--filename",
        dest="files",
        metavar="FILE",
        nargs="+",
        action="extend",
        required=True,
        help=about,
    )


def _configuration(parser: argparse.ArgumentParser) -> None:
    """Add the flags that replace fields of the manager's Configuration."""
    parser.add_argument(
        "--compatibility-version",
        choices=("2.1", "2.3", "2.4"),
        default="2.1",
        help="release of Trainer whose behaviour applies, as in the manager's Configuration (default 2.1)",
    )
    parser.add_argument(
        "--feature-gates",
        type=flagtypes.feature_gates,
        default={},
        metavar="NAME=BOOL,...",
        help="feature gates of the manager, written as for its own flag (default: the default of each gate)",
    )
