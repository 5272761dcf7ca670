# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""The names that identify kinds, resources and objects, and checks of names, labels and ports.

A check that returns a list returns the API server's error messages; the list is empty if the value is valid.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_ALNUM_WORD: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_ALNUM_WORD})?"
_DNS1123_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS1123_SUBDOMAIN: Final = f"{_DNS1123_LABEL}(\\.{_DNS1123_LABEL})*"
_DNS1035_LABEL: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"

DNS1123_LABEL_MAX_LENGTH: Final = 63
DNS1035_LABEL_MAX_LENGTH: Final = 63
DNS1123_SUBDOMAIN_MAX_LENGTH: Final = 253
LABEL_VALUE_MAX_LENGTH: Final = 63
ANNOTATIONS_MAX_SIZE: Final = 256 << 10
"""Maximum size in bytes of the keys and values of all annotations of an object."""


class GroupKind(NamedTuple):
    """A kind without its version; renders as Go does, ``Deployment.apps``."""

    group: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


class GVK(NamedTuple):
    """Group, version and kind; the core group is the empty string."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """``apiVersion`` on the wire: ``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_kind(self) -> GroupKind:
        """The same kind in any version."""
        return GroupKind(self.group, self.kind)

    @classmethod
    def parse(cls, api_version: str, kind: str) -> GVK:
        """Return the GVK of an ``apiVersion`` and a ``kind``.

        Raises:
            ValueError: ``api_version`` has more than one slash, or ends with one.
        """
        group, slash, version = api_version.rpartition("/")
        if "/" in group or (slash and not version):
            raise ValueError(f"unexpected apiVersion: {api_version!r}")
        return cls(group, version, kind)

    def __str__(self) -> str:
        return f"{self.api_version}, Kind={self.kind}"


class Resource(NamedTuple):
    """The resource of a kind: its plural name in URLs, and whether it is namespaced."""

    group: str
    version: str
    plural: str
    namespaced: bool

    @property
    def group_resource(self) -> str:
        """``plural.group``, as used in error messages and metrics."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class NamespacedName(NamedTuple):
    """The key of an object; ``namespace`` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    @classmethod
    def of(cls, pair: object) -> NamespacedName:
        """Return a (namespace, name) pair as a key.

        Raises:
            TypeError: ``pair`` is not a tuple of two texts. Strings are rejected, too: a name of two characters could
                otherwise be mistaken for a pair. A namespace that is None is taken as empty.
        """
        if isinstance(pair, NamespacedName):
            return pair
        match pair:
            case (str() | None as namespace, str() as name) if isinstance(pair, tuple):
                return cls(namespace or "", name)
        raise TypeError(f"the key {pair!r} must be a pair, (namespace, name); the namespace may be empty")

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def _matches(pattern: str, value: str) -> bool:
    return re.fullmatch(pattern, value, re.ASCII) is not None


def regex_error(message: str, pattern: str, *examples: str) -> str:
    """Return ``message`` with examples and the regular expression appended."""
    if not examples:
        return f"{message} (regex used for validation is '{pattern}')"
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{message} (e.g. {shown}regex used for validation is '{pattern}')"


def max_length_error(length: int) -> str:
    """Return the message for a value that is too long."""
    return f"must be no more than {length} characters"


def range_error(low: int, high: int) -> str:
    """Return the message for a number outside a closed range."""
    return f"must be between {low} and {high}, inclusive"


def _too_long(value: str, limit: int) -> list[str]:
    # The API server counts bytes.
    return [max_length_error(limit)] if len(value.encode()) > limit else []


def _checked(value: str, limit: int, pattern: str, text: str, *examples: str) -> list[str]:
    errors = _too_long(value, limit)
    if not _matches(pattern, value):
        errors.append(regex_error(text, pattern, *examples))
    return errors


def is_dns1123_label(value: str) -> list[str]:
    """Check a DNS-1123 label, such as the name of a namespace."""
    errors = _too_long(value, DNS1123_LABEL_MAX_LENGTH)
    if not _matches(_DNS1123_LABEL, value):
        if _matches(_DNS1123_SUBDOMAIN, value):
            errors.append("must not contain dots")
        else:
            text = (
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
                "and must start and end with an alphanumeric character"
            )
            errors.append(regex_error(text, _DNS1123_LABEL, "my-name", "123-abc"))
    return errors


def is_dns1123_subdomain(value: str) -> list[str]:
    """Check a DNS-1123 subdomain, such as the name of a Pod."""
    text = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
        "and must start and end with an alphanumeric character"
    )
    return _checked(value, DNS1123_SUBDOMAIN_MAX_LENGTH, _DNS1123_SUBDOMAIN, text, "example.com")


def is_dns1035_label(value: str) -> list[str]:
    """Check a DNS-1035 label, such as the name of a Service; it may not start with a digit."""
    text = (
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
        "start with an alphabetic character, and end with an alphanumeric character"
    )
    return _checked(value, DNS1035_LABEL_MAX_LENGTH, _DNS1035_LABEL, text, "my-name", "abc-123")


def is_api_group(value: str) -> bool:
    """Return True if ``value`` can be the name of an API group; the core group is the empty string."""
    return not value or not is_dns1123_subdomain(value[: DNS1123_SUBDOMAIN_MAX_LENGTH + 1])


def is_api_version(value: str) -> bool:
    """Return True if ``value`` can be the name of an API version, such as ``v1beta1``."""
    return not is_dns1035_label(value[: DNS1035_LABEL_MAX_LENGTH + 1])


def is_kind(value: str) -> bool:
    """Return True if ``value`` can be the name of a kind: a DNS label in any case."""
    return not is_dns1035_label(value[: DNS1035_LABEL_MAX_LENGTH + 1].lower())


def is_path_segment(value: str) -> bool:
    """Return True if ``value`` is valid as an object's name in a URL.

    Such a name is not empty, ``.`` or ``..``, and contains no slash and no percent sign.
    """
    return value not in {"", ".", ".."} and "/" not in value and "%" not in value


def is_qualified_name(value: str) -> list[str]:
    """Check a label's key, such as ``app`` or ``example.com/app``."""
    text = (
        "must consist of alphanumeric characters, '-', '_' or '.', "
        "and must start and end with an alphanumeric character"
    )
    pattern = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
    wrong = regex_error(text, pattern, "MyName", "my.name", "123-abc")
    prefix, slash, name = value.partition("/")
    if "/" in name:
        return [
            f"a qualified name {wrong} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    errors: list[str] = []
    if not slash:
        name = prefix
    elif not prefix:
        errors.append("prefix part must be non-empty")
    else:
        errors.extend(f"prefix part {error}" for error in is_dns1123_subdomain(prefix))
    if not name:
        errors.append("name part must be non-empty")
    else:
        errors.extend(f"name part {error}" for error in _too_long(name, LABEL_VALUE_MAX_LENGTH))
    if not _matches(pattern, name):
        errors.append(f"name part {wrong}")
    return errors


def is_label_key(value: str) -> list[str]:
    """Check a key of labels or annotations, or a finalizer, with the rules of :func:`is_qualified_name`."""
    return [problem.replace("a qualified name", "a valid label key") for problem in is_qualified_name(value)]


def is_label_value(value: str) -> list[str]:
    """Check a label's value."""
    text = (
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
        "and must start and end with an alphanumeric character"
    )
    return _checked(value, LABEL_VALUE_MAX_LENGTH, _LABEL_VALUE, text, "MyValue", "my_value", "12345")


def is_port_number(port: int) -> list[str]:
    """Check a port number."""
    return [] if 1 <= port <= 65535 else [range_error(1, 65535)]
