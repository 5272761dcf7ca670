# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Write the project of a new operator: check the names, fill in the templates, generate the first manifests."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import keyword
import re
import secrets
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Final

from controller_runtime.machinery import Object

from . import crd, files, rbac, webhooks

TEMPLATES: Final = Path(__file__).parent / "templates"

_DISTRIBUTION: Final = "controller-runtime"
_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_GROUP_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_VERSION: Final = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]*")
_TAKEN: Final = frozenset({"controller_runtime", "config", "tests", "wheels", "dist"})
_PROTECTED: Final = ("k8s.io", "kubernetes.io")
_LONGEST_LABEL: Final = 63
_LONGEST_GROUP: Final = 180
"""Maximum length of a group, so that the name of the CRD, PLURAL.GROUP, has at most 253 characters."""
_LONGEST_NAME: Final = _LONGEST_LABEL - len("-webhook")
_PLACEHOLDER: Final = re.compile(r"\{\{(\w+)\}\}")


class ProjectError(ValueError):
    """A project cannot be written with these names or to this folder."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The names in a project."""

    name: str
    """The name of the project; its program, its Deployment and its roles have the same name."""
    kind: str
    group: str = "example.com"
    version: str = "v1alpha1"
    plural: str = ""
    """The kind's plural name. If it is empty, it is formed from the kind."""
    webhook: bool = True

    @property
    def module(self) -> str:
        """The name of the Python package."""
        return self.name.replace("-", "_")

    @property
    def namespace(self) -> str:
        """The namespace that the operator runs in."""
        return f"{self.name}-system"

    @property
    def resource(self) -> str:
        """The kind's plural name."""
        return self.plural or _plural(self.kind.lower())

    def check(self) -> None:
        """Raise ProjectError if a name is not valid in Kubernetes or Python."""
        for problem in self._problems():
            raise ProjectError(problem)

    def _problems(self) -> Iterator[str]:
        if not _LABEL.fullmatch(self.name) or len(self.name) > _LONGEST_NAME:
            yield (
                f'the name "{self.name}" must consist of lower case letters, digits and "-", start with a letter, '
                f'not end with "-", and have at most {_LONGEST_NAME} characters'
            )
        if problem := _module_problem(self.module):
            yield f'the name "{self.name}" {problem}'
        if not _KIND.fullmatch(self.kind) or len(self.kind) > _LONGEST_LABEL or keyword.iskeyword(self.kind):
            yield f'--kind "{self.kind}" must be letters and digits in CamelCase, such as Website'
        if not _is_group(self.group):
            yield f'--group "{self.group}" must be a lower case domain name, such as example.com'
        if any(f".{self.group}".endswith(f".{domain}") for domain in _PROTECTED):
            yield f'--group "{self.group}": groups below {" and ".join(_PROTECTED)} belong to Kubernetes'
        if not _VERSION.fullmatch(self.version):
            yield f'--version "{self.version}" must be such as v1, v1beta1 or v1alpha1'
        if not _LABEL.fullmatch(self.resource) or len(self.resource) > _LONGEST_LABEL:
            yield f'--plural "{self.resource}" must consist of lower case letters, digits and "-"'

    def values(self) -> dict[str, str]:
        """Return the values of the templates' placeholders."""
        return {
            "name": self.name,
            "module": self.module,
            "kind": self.kind,
            "singular": self.kind.lower(),
            "plural": self.resource,
            "group": self.group,
            "group_path": self.group.replace(".", "-"),
            "version": self.version,
            "namespace": self.namespace,
            "requirement": _requirement(),
            "generated_webhook": " and `webhook/manifests.yaml`" if self.webhook else "",
        }


def create(project: Project, directory: Path) -> list[Path]:
    """Write a project to a new or empty folder and return the paths of its files.

    Raises:
        ProjectError: a name is not valid, or the folder is not empty.
    """
    project.check()
    if directory.exists() and not directory.is_dir():
        raise ProjectError(f"{directory} is not a folder")
    if directory.is_dir() and any(directory.iterdir()):
        raise ProjectError(f"the folder {directory} is not empty")
    texts = render(project)
    written = files.write(directory, texts)
    written += files.write(directory, _generated(project, directory))
    return written


def render(project: Project) -> dict[str, str]:
    """Return the text of each file that comes from a template, by its path in the project.

    Raises:
        ProjectError: a file of the project imports something else with the kind's name.
    """
    values = project.values()
    conditions = {"webhook": project.webhook}
    texts: dict[str, str] = {}
    for template in sorted(TEMPLATES.rglob("*.tmpl")):
        parts = template.relative_to(TEMPLATES).with_suffix("").parts
        path = "/".join(parts).replace("MODULE", project.module).replace("dot-", ".")
        text = "".join(_chosen(template.read_text(encoding="utf-8"), conditions))
        if text:  # all lines of the file belong to a part that was left out
            texts[path] = _PLACEHOLDER.sub(lambda match: values[match[1]], text)
    for path, text in texts.items():
        if path.endswith(".py") and project.kind in _imported(text):
            raise ProjectError(f"--kind {project.kind}: {path} imports something else with this name")
    return texts


def _chosen(text: str, conditions: dict[str, bool]) -> Iterator[str]:
    """Yield the lines of a template, without those that ``%% if NAME``, ``%% else`` and ``%% end`` exclude."""
    holds = True
    for line in text.splitlines(keepends=True):
        match line.split():
            case ["%%", "if", name]:
                holds = conditions[name]
            case ["%%", "else"]:
                holds = not holds
            case ["%%", "end"]:
                holds = True
            case _:
                if holds:
                    yield line


def _generated(project: Project, directory: Path) -> dict[str, str]:
    """Return the manifests that the project's own ``make manifests`` would write."""
    code = directory / project.module
    made = {f"config/crd/{name}": text for name, text in crd.manifests(_kinds(code / "api.py")).items()}
    made["config/rbac/role.yaml"] = rbac.manifests(project.name, rbac.collect([code]))
    if project.webhook:
        service = webhooks.Service(project.namespace, f"{project.name}-webhook", project.name)
        made["config/webhook/manifests.yaml"] = webhooks.manifests(webhooks.collect([code]), service)
    return made


def _kinds(path: Path) -> list[type[Object]]:
    # A unique name for each call: the generator caches the sources of modules by name.
    name = f"_new_operator_{secrets.token_hex(4)}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Loader(name, str(path)))
    if spec is None or spec.loader is None:
        raise ProjectError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return crd.kinds_of(module)


class _Loader(SourceFileLoader):
    """Loads a module, but writes no ``__pycache__`` into the user's folder."""

    def set_data(self, path: str, data: object, *, _mode: int = 0o666) -> None:
        """Write nothing."""


def _imported(text: str) -> set[str]:
    """Return the names that a module imports."""
    statements = ast.walk(ast.parse(text))
    return {
        alias.asname or alias.name
        for node in statements
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }


def _module_problem(module: str) -> str:
    if keyword.iskeyword(module) or keyword.issoftkeyword(module):
        return "is a keyword of Python"
    if module in sys.stdlib_module_names:
        return "is the name of a module of Python's standard library"
    if module in _TAKEN:
        return "is the name of another folder of the project, or of a package that it imports"
    # To look through all that is installed takes a while, so only do it if there is a module of this name.
    installed = importlib.util.find_spec(module) and packages_distributions().get(module)
    return f"is the name of a package that is installed here, from {installed[0]}" if installed else ""


def _is_group(group: str) -> bool:
    labels = group.split(".")
    return len(labels) > 1 and len(group) <= _LONGEST_GROUP and all(map(_GROUP_LABEL.fullmatch, labels))


def _plural(word: str) -> str:
    if re.search(r"(s|x|z|ch|sh)$", word):
        return f"{word}es"
    if re.search(r"[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    return f"{word}s"


def _requirement() -> str:
    """Return a pip requirement for this release and compatible newer ones."""
    try:
        major, minor = (int(part) for part in version(_DISTRIBUTION).split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return _DISTRIBUTION
    return f"{_DISTRIBUTION}>={major}.{minor},<{major}.{minor + 1}"
