# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
import io
import json
import logging
import re
import unicodedata
from collections.abc import Callable
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest

from controller_runtime import Request, log, rest
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.cache import CacheDegradedError
from controller_runtime.machinery import NamespacedName
from controller_runtime.machinery.errors import NotFoundError

Start = Callable[..., Callable[[], list[str]]]
NS = 1_700_000_000_123_456_789
SECOND = NS - NS % 1_000_000_000


@pytest.fixture
def lines() -> Start:
    def start(**options: Any) -> Callable[[], list[str]]:
        stream = io.StringIO()
        log.configure(log.Options(**options), stream=stream, now_ns=lambda: NS)
        return lambda: stream.getvalue().splitlines()

    return start


def test_a_json_line_has_zaps_keys_in_zaps_order(lines: Start) -> None:
    read = lines()
    log.logger_from("setup").info("Starting", port=9443)
    assert read() == [
        '{"level":"info","ts":"2023-11-14T22:13:20Z","logger":"setup","msg":"Starting","port":9443}'
    ]


GO = {
    "json": '{"level":"info","ts":"2026-11-22T15:30:17.843229575Z","logger":"setup","caller":"trainer-controller-manager/main.go:93",'
    '"msg":"Loading configuration","configFile":""}',
    "console": "2026-11-22T15:30:17.904389286Z\tINFO\tsetup\ttrainer-controller-manager/main.go:93\tLoading configuration\t"
    '{"configFile": ""}',
}
"""Lines of Trainer v2.1.0's manager."""


@pytest.mark.parametrize("encoder", GO)
@pytest.mark.parametrize("development", [False, True])
def test_a_line_names_its_caller_where_gos_manager_does(
    lines: Start, encoder: str, development: bool
) -> None:
    read = lines(encoder=log.Encoder(encoder), development=development, caller=True)
    log.logger_from("setup").info("Loading configuration", configFile="")
    here = re.compile(r"log/test_log\.py:\d+")
    varying = re.compile(r"20\d\d-[-0-9T:.]+Z|trainer-controller-manager/main\.go:\d+|" + here.pattern)
    (line,) = read()
    assert here.search(line)
    assert varying.sub("", line) == varying.sub("", GO[encoder])


def test_the_caller_is_outside_of_logging_at_every_level_and_through_foreign_loggers(lines: Start) -> None:
    read = lines(verbosity=log.TRACE, caller=True)
    own, bound = log.logger_from("own"), logging.getLogger("foreign")
    for write in (
        own.trace,
        own.debug,
        own.info,
        own.warning,
        own.error,
        bound.warning,
        bound.error,
        bound.debug,
    ):
        write("x")
    callers = [json.loads(line)["caller"] for line in read()]
    assert len(callers) == 8
    assert {each.rpartition(":")[0] for each in callers} == {"log/test_log.py"}


def test_a_line_that_is_not_written_does_not_look_for_its_caller(
    lines: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller_runtime.log.setup.caller", lambda: pytest.fail("looked"))
    lines(caller=True)
    log.logger_from("x").debug("not written")
    lines(caller=False)
    log.logger_from("x").info("written")


def caught(error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("flag", "ns", "ts"),
    [
        ("epoch", NS, NS / 1e9),
        ("millis", NS, NS / 1e6),
        ("nanos", NS, NS),
        ("nano", NS, NS),
        ("iso8601", NS, "2023-11-14T22:13:20.123Z"),
        ("iso8601", SECOND + 7_000_000, "2023-11-14T22:13:20.007Z"),
        ("rfc3339", NS, "2023-11-14T22:13:20Z"),
        ("RFC3339Nano", NS, "2023-11-14T22:13:20.123456789Z"),
        ("RFC3339Nano", SECOND + 7_000_000, "2023-11-14T22:13:20.007Z"),
        ("RFC3339Nano", SECOND, "2023-11-14T22:13:20Z"),
    ],
)
def test_time_is_written_as_the_flag_says(flag: str, ns: int, ts: object) -> None:
    stream = io.StringIO()
    log.configure(log.Options.from_flags(time_encoding=flag), stream=stream, now_ns=lambda: ns)
    log.logger_from().info("x")
    assert json.loads(stream.getvalue())["ts"] == ts


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("panic", []),
        ("error", ["error"]),
        ("info", ["error", "warn", "info"]),
        ("debug", ["error", "warn", "info", "debug"]),
        ("2", ["error", "warn", "info", "debug"]),
        ("5", ["error", "warn", "info", "debug", "Level(-5)"]),
    ],
)
def test_levels_below_the_flag_are_not_written(level: str, written: list[str]) -> None:
    stream = io.StringIO()
    log.configure(log.Options.from_flags(level=level), stream=stream)
    logger = log.logger_from()
    for method in (logger.error, logger.warning, logger.info, logger.debug, logger.trace):
        method("x")
    assert [json.loads(line)["level"] for line in stream.getvalue().splitlines()] == written


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("level", "loud", 'invalid log level "loud"'),
        ("level", "0", 'invalid log level "0"'),
        ("level", "-1", 'invalid log level "-1"'),
        ("encoder", "xml", 'invalid encoder value "xml"'),
        ("stacktrace_level", "debug", 'invalid stacktrace level "debug"'),
        ("time_encoding", "noon", 'invalid time-encoding value "noon"'),
    ],
)
def test_a_flag_that_names_nothing_is_refused_in_zaps_words(flag: str, value: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message + "$"):
        log.Options.from_flags(**{flag: value})  # type: ignore[arg-type]  # only texts are tried


def test_development_means_console_debug_and_stacks_with_warnings(lines: Start) -> None:
    read = lines(development=True)
    log.logger_from("a").debug("Hello", n=1)
    log.logger_from("a").warning("Careful", error=caught(RuntimeError("boom")))
    assert read()[0] == '2023-11-14T22:13:20Z\tDEBUG\ta\tHello\t{"n": 1}'
    assert read()[1] == '2023-11-14T22:13:20Z\tWARN\ta\tCareful\t{"error": "boom"}'
    assert read()[2].startswith("Traceback")


CONTROL = "a\x1b[31mred\x9b0m\x7f\b\nINFO\tforged"
ESCAPED = r"a\u001b[31mred\u009b0m\u007f"


@pytest.mark.parametrize("encoder", ["json", "console"])
def test_control_characters_are_escaped_wherever_they_come_from(encoder: str) -> None:
    stream = io.StringIO()
    log.configure(log.Options.from_flags(encoder=encoder), stream=stream, now_ns=lambda: NS)
    error = caught(ValueError(CONTROL))
    log.logger_from(CONTROL).error(CONTROL, error=error, value=CONTROL, **{CONTROL: [CONTROL]})
    written = stream.getvalue()
    assert written.count(ESCAPED) >= 6
    assert not [char for char in written if char not in "\n\t" and unicodedata.category(char) == "Cc"]
    assert not re.search(r"^INFO", written, re.MULTILINE)


@pytest.mark.parametrize("encoder", ["json", "console"])
def test_invisible_characters_and_line_breaks_are_escaped_too(encoder: str) -> None:
    stream = io.StringIO()
    log.configure(log.Options.from_flags(encoder=encoder), stream=stream, now_ns=lambda: NS)
    hidden = "a\u2028\x85\u202e\u200b\ufeff\ufe0f\U000e0041b"
    log.logger_from(hidden).error(hidden, error=caught(ValueError(hidden)), value=hidden)
    written = stream.getvalue()
    assert written.count(r"a\u2028\u0085\u202e\u200b\ufeff\ufe0f\udb40\udc41b") >= 5
    assert not set(hidden) & set(written) - {"a", "b"}


def test_a_text_that_is_not_utf_8_is_written_nevertheless(lines: Start) -> None:
    read = lines()
    log.logger_from().error("x\udcff", error=caught(ValueError("a\udcff")), header={"k": ["b\udcff"]})
    line = json.loads(read()[0])
    assert (line["msg"], line["error"], line["header"]) == (r"x\udcff", r"a\udcff", {"k": [r"b\udcff"]})


@pytest.mark.parametrize("failure", [OSError("no space left"), ValueError("closed"), AttributeError("none")])
def test_a_line_that_cannot_be_written_is_no_error_of_the_code_that_logs(failure: Exception) -> None:
    class Broken(io.StringIO):
        def write(self, _: str) -> int:
            raise failure

    log.configure(stream=Broken())
    log.logger_from().info("Lost")


def test_a_value_without_end_or_whose_text_fails_is_named_by_its_type(lines: Start) -> None:
    class Silent:
        def __str__(self) -> str:
            raise KeyError("text")

    class Number(int):
        __str__ = Silent.__str__

    endless: list[object] = []
    endless.append(endless)
    read = lines()
    log.logger_from().info("Values", endless=endless, silent=Silent(), number=Number(3), good=1)
    assert json.loads(read()[0]) | {"ts": 0, "number": ""} == {
        "level": "info",
        "ts": 0,
        "msg": "Values",
        "endless": "<list: it cannot be written, RecursionError was raised>",
        "silent": "<Silent: it cannot be written, KeyError was raised>",
        "number": "",
        "good": 1,
    }


def test_a_very_long_value_is_cut(lines: Start) -> None:
    read = lines()
    log.logger_from().error("x", error=caught(ValueError("y" * 10**6)), value=["z" * 10**6])
    (written,) = read()
    assert len(written) < 100_000
    line = json.loads(written)
    assert line["error"].endswith("yyy… (1000000 characters)")
    assert line["value"][0].endswith("zzz… (1000000 characters)")


@pytest.mark.parametrize("encoder", ["json", "console"])
def test_a_number_that_python_refuses_to_write_does_not_lose_the_line(lines: Start, encoder: str) -> None:
    read = lines(encoder=log.parse_encoder(encoder))
    log.logger_from().info("x", huge=10**5000, listed=[-(10**5000)], large=10**30)
    (written,) = read()
    assert written.count("<a number of 16610 bits>") == 2
    assert f"{10**30}" in written


def test_lines_that_a_client_can_cause_are_held_back_and_counted() -> None:
    now = 0.0
    limiter = log.LineLimiter(burst=2, per_second=0.5, clock=lambda: now)
    assert [limiter.allow() for _ in range(5)] == [{}, {}, None, None, None]
    now = 2.0
    assert [limiter.allow(), limiter.allow()] == [{"heldBack": 3}, None]
    now = 1000.0
    assert [limiter.allow() for _ in range(3)] == [{"heldBack": 1}, {}, None]


@pytest.mark.parametrize("field", ["error", "exc_info"])
def test_an_error_carries_its_text_and_its_stack(lines: Start, field: str) -> None:
    read = lines()
    error = caught(ExceptionGroup("both", [ValueError("one"), OSError("two")]))
    log.logger_from().error("Reconciler error", **{field: error})
    line = json.loads(read()[0])
    assert line["error"] == "one\ntwo"
    assert "ValueError: one" in line["stacktrace"]


def test_an_error_that_was_never_raised_has_no_stack(lines: Start) -> None:
    read = lines()
    log.logger_from().error("Failed", error=ValueError("one"))
    line = json.loads(read()[0])
    assert line["error"] == "one"
    assert "stacktrace" not in line


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError('pods "a" not found'),
        rest.TransportError("connection refused", host="a"),
        CacheDegradedError(Pod.gvk, "not served"),
        ExceptionGroup("all", [NotFoundError("a"), ExceptionGroup("in", [rest.NoKindMatchError(Pod.gvk)])]),
    ],
)
def test_an_error_of_the_world_outside_carries_its_text_alone(lines: Start, error: Exception) -> None:
    read = lines()
    log.logger_from().error("Reconciler error", error=caught(error))
    line = json.loads(read()[0])
    assert line["error"]
    assert "stacktrace" not in line


def test_a_group_with_an_error_of_ours_carries_its_stack_and_says_nothing_twice(lines: Start) -> None:
    read = lines()
    group = ExceptionGroup("all", [NotFoundError("gone"), NotFoundError("gone"), ValueError("a bug")])
    log.logger_from().error("Reconciler error", error=caught(group))
    line = json.loads(read()[0])
    assert line["error"] == "gone\na bug"
    assert "ValueError: a bug" in line["stacktrace"]


def test_values_are_references_and_plain_json(lines: Start) -> None:
    read = lines()
    pod = Pod.from_dict({"metadata": {"namespace": "a", "name": "b"}, "spec": {"containers": []}})
    log.logger_from().info(
        "x",
        pod=pod,
        key=NamespacedName("", "node"),
        wait=timedelta(seconds=1.5),
        gvk=Pod.gvk,
        some={3},
        more=MappingProxyType({"keys": [Request("a", "b"), Pod.gvk]}),
        event="e",
    )
    assert json.loads(read()[0]) == {
        "level": "info",
        "ts": "2023-11-14T22:13:20Z",
        "msg": "x",
        "pod": {"apiVersion": "v1", "kind": "Pod", "namespace": "a", "name": "b"},
        "key": {"name": "node"},
        "wait": 1.5,
        "gvk": "v1, Kind=Pod",
        "some": [3],
        "more": {"keys": [{"namespace": "a", "name": "b"}, "v1, Kind=Pod"]},
        "event_": "e",
    }


def test_what_the_context_binds_is_on_each_line_until_it_ends(lines: Start) -> None:
    read = lines()
    logger = log.logger_from()
    with log.into_context(controller="pod"):
        logger.info("in")
    logger.info("out")
    assert [json.loads(line).get("controller") for line in read()] == ["pod", None]


def test_late_fields_are_made_once_and_only_for_a_line_that_is_written(lines: Start) -> None:
    read, made = lines(), []

    def fields() -> dict[str, object]:
        made.append("fields")
        return {"pod": "p", "inner": 1}

    logger = log.logger_from()
    with log.into_context(controller="pod", pod="none"), log.into_context_late(fields):
        logger.debug("not written")
        assert made == []
        logger.info("first")
        with log.into_context(inner=2):
            logger.info("second")
        assert dict(log.bound()) == {"controller": "pod", "pod": "p", "inner": 1}
        assert len(log.bound()) == 3
    logger.info("out")
    assert made == ["fields"]
    found = [json.loads(line) for line in read()]
    assert [(each.get("controller"), each.get("pod"), each.get("inner")) for each in found] == [
        ("pod", "p", 1),
        ("pod", "p", 2),
        (None, None, None),
    ]


def test_a_logger_made_before_the_set_up_follows_it(lines: Start) -> None:
    logger = log.logger_from("early")
    read = lines()
    logger.info("x")
    assert json.loads(read()[0])["logger"] == "early"


def test_other_libraries_warnings_come_in_the_same_form(lines: Start) -> None:
    read = lines()
    logging.getLogger("aiohttp.server").warning("odd %s", "thing")
    logging.getLogger("aiohttp.server").info("chatter")
    assert [json.loads(line)["msg"] for line in read()] == ["odd thing"]
