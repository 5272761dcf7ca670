# SPDX-FileCopyrightText: The trainer-controller-manager authors
# SPDX-License-Identifier: Apache-2.0
"""Lines are records of Python's logging; a log call never raises."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import structlog

from controller_runtime import log, reconcile
from controller_runtime.apis.core.v1 import Pod
from controller_runtime.controller import Controller, Options
from ctrl_testkit.odd_exceptions import Odd


@pytest.fixture
def handled() -> Callable[[logging.Handler], None]:
    """Return a function that adds a handler as an application does: at the root logger, with level INFO."""
    logging.root.setLevel(logging.INFO)
    logging.root.handlers[:] = []
    return logging.root.addHandler


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class Raises:
    async def reconcile(self, request: reconcile.Request) -> reconcile.Result:
        raise ValueError(f"no {request.name}")


async def test_an_application_that_configured_logging_gets_the_line_with_object_controller_and_traceback(
    handled: Callable[[logging.Handler], None],
) -> None:
    kept = Kept()
    handled(kept)
    made = Controller("pods", Raises(), Options(kind=Pod.gvk))
    with log.into_context(controller="pods"):
        await made._handle(reconcile.Request("ns", "p"), 0)
    (record,) = kept.records
    assert (record.name, record.levelname) == ("controller_runtime.controller", "ERROR")
    assert record.getMessage() == "Reconciler error"
    assert record.exc_info
    assert isinstance(record.exc_info[1], ValueError)
    found = vars(record)
    assert (found["controller"], found["namespace"], found["name_"], found["error"]) == (
        "pods",
        "ns",
        "p",
        "no p",
    )
    assert found["reconcileID"]
    text = logging.Formatter("%(message)s").format(record)
    assert "Traceback" in text
    assert text.endswith("ValueError: no p")


def test_a_field_named_like_an_attribute_of_records_gets_an_underscore(
    handled: Callable[[logging.Handler], None],
) -> None:
    kept, error = Kept(), ValueError("no")
    handled(kept)
    log.logger_from("controller").info("Said", args=(1,), message="text", exc_info=error, pod="a")
    (record,) = kept.records
    found = vars(record)
    assert (found["args_"], found["message_"], found["pod"]) == ((1,), "text", "a")
    assert (record.getMessage(), record.args) == ("Said", ())
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert "exc_info_" not in found


def test_a_structlog_set_up_of_the_application_gets_the_fields(
    handled: Callable[[logging.Handler], None],
) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(default=str),
            ],
        )
    )
    handled(handler)
    with log.into_context(controller="pods"):
        log.logger_from("mine").info("Scaled", replicas=3, pod=Pod.from_dict({"metadata": {"name": "p"}}).key)
    (line,) = [json.loads(each) for each in stream.getvalue().splitlines()]
    assert line.pop("pod")
    line.pop("message", None)  # pytest has formatted the record, too
    wanted = {"event": "Scaled", "logger": "controller_runtime.mine", "controller": "pods", "replicas": 3}
    assert line == wanted


def test_a_handler_beside_the_configured_one_gets_the_records(
    handled: Callable[[logging.Handler], None],
) -> None:
    kept, stream = Kept(), io.StringIO()
    handled(kept)
    log.configure(stream=stream)
    log.logger_from("setup").info("Starting", port=1)
    log.logger_from("setup").debug("Not written")
    (record,) = kept.records
    assert vars(record)["port"] == 1
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["msg"] == "Starting"


def test_without_a_set_up_debug_lines_are_dropped_before_they_are_made(
    handled: Callable[[logging.Handler], None],
) -> None:
    kept = Kept()
    handled(kept)
    assert not log.may_write(log.DEBUG)
    log.logger_from("x").debug("Not written")
    assert kept.records == []


class Fails(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise KeyError(record.getMessage())


def deep() -> BaseException:
    made: Exception = ValueError()
    for _ in range(500):
        made = ExceptionGroup("", [made])
    return made


@pytest.mark.parametrize(
    "handler", [logging.StreamHandler, Fails, log.configure], ids=["plain", "broken", "zap"]
)
def test_a_log_call_never_raises(
    handled: Callable[[logging.Handler], None],
    odd: Odd,
    handler: Any,
) -> None:
    stream = io.StringIO()
    if handler is log.configure:
        log.configure(stream=stream)
    else:
        handled(handler() if handler is Fails else handler(stream))
    for error in (odd(), deep(), Exception()):
        log.logger_from("x").error("Failed", error=error)
        log.logger_from("x").error("Failed", value=error, error="a text")
    assert handler is Fails or stream.getvalue().count("Failed") >= 6


class NoClass:
    """An object that is compared with no class, such as a proxy whose target is gone."""

    def __getattribute__(self, name: str) -> Any:
        raise ReferenceError("gone")

    def __str__(self) -> str:
        return "a proxy"


@pytest.mark.parametrize("key", ["error", "exc_info", "value"])
def test_a_line_with_an_object_that_is_no_error_is_not_lost(
    handled: Callable[[logging.Handler], None], key: str
) -> None:
    stream, kept = io.StringIO(), Kept()
    log.configure(stream=stream)
    handled(kept)
    log.logger_from("x").error("Failed", **{key: NoClass()})
    assert [record.getMessage() for record in kept.records] == ["Failed"]
    assert "Failed" in stream.getvalue()


def test_the_library_configures_nobody() -> None:
    code = (
        "import logging, structlog, controller_runtime as ctrl\n"
        "from controller_runtime import log, manager, controller\n"
        "log.logger_from('x').info('said')\n"
        "ours = logging.getLogger('controller_runtime')\n"
        "print(logging.root.handlers, ours.handlers, ours.level, structlog.is_configured())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[] [] 0 False\n"
    assert ran.stderr == ""


def test_half_of_a_surrogate_pair_can_be_written_by_any_handler(
    handled: Callable[[logging.Handler], None],
) -> None:
    written = io.BytesIO()
    handled(logging.StreamHandler(io.TextIOWrapper(written, "utf-8", write_through=True)))

    def fail() -> None:
        raise ValueError("a \ud801 text")

    try:
        fail()
    except ValueError as error:
        log.logger_from("x").error("a \ud800 message", error=error)
    text = written.getvalue().decode()
    assert text.startswith("a \\ud800 message\nTraceback")
    assert text.endswith("\nValueError: a \\ud801 text\n")


def fail(logger: Any) -> None:
    try:
        int("broken")
    except ValueError as error:
        logger.exception("Failed %d times", 2, pod="p")
        logger.warning("Failed", exc_info=True)
        logger.warning("Failed", exc_info=sys.exc_info())
        logger.warning("Failed", exc_info=1)
        logger.critical("Failed", error=error)


def test_calls_in_the_form_of_logging_have_its_meaning(handled: Callable[[logging.Handler], None]) -> None:
    kept = Kept()
    handled(kept)
    logger: Any = log.logger_from("x")
    fail(logger)
    assert [record.getMessage() for record in kept.records] == [
        "Failed 2 times",
        *["Failed"] * 4,
    ]
    assert [record.levelname for record in kept.records] == ["ERROR", *["WARNING"] * 3, "CRITICAL"]
    assert all(record.exc_info and isinstance(record.exc_info[1], ValueError) for record in kept.records)
    assert vars(kept.records[0])["pod"] == "p"
    logger.info("%s and %(no)s", "a")
    logger.info("%(name)s", {"name": "a"})
    logger.warning("Nothing is handled", exc_info=True)
    assert [record.getMessage() for record in kept.records[5:7]] == ["%s and %(no)s a", "a"]
    assert kept.records[7].exc_info is None


def test_a_record_has_the_place_of_the_call(handled: Callable[[logging.Handler], None]) -> None:
    kept = Kept()
    handled(kept)
    logging.getLogger("controller_runtime").setLevel(1)
    logger = log.logger_from("x")
    for method in ("critical", "error", "warning", "info", "debug", "trace", "exception"):
        getattr(logger, method)("Said")
        getattr(logger.bind(a=1), method)("Said")
    line = logging.currentframe().f_lineno
    found = {(each.pathname, each.filename, each.module, each.funcName) for each in kept.records}
    name = "test_a_record_has_the_place_of_the_call"
    assert found == {(__file__, "test_records.py", "test_records", name)}
    assert {each.lineno for each in kept.records} == {line - 2, line - 1}
    assert len(kept.records) == 14


def test_lines_of_the_application_are_written_if_it_sets_a_level_for_them() -> None:
    stream = io.StringIO()
    log.configure(stream=stream)
    unset, chosen = logging.getLogger("someone"), logging.getLogger("example.app")
    chosen.setLevel(logging.DEBUG)
    try:
        for logger in (unset, chosen):
            logger.info("Started")
            logger.debug("Detail")
    finally:
        chosen.setLevel(logging.NOTSET)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["logger"], line["level"], line["msg"]) for line in lines] == [
        ("example.app", "info", "Started"),
        ("example.app", "debug", "Detail"),
    ]


@pytest.mark.parametrize(
    "place", ["the logger", "a logger above it", "the logger's filter", "the handler's filter"]
)
def test_a_line_of_the_configured_handler_still_passes_handlers_and_filters(place: str) -> None:
    logging.root.handlers[:] = []
    stream, kept = io.StringIO(), Kept()
    log.configure(stream=stream)
    above = logging.getLogger("controller_runtime.passes")
    logger = logging.getLogger("controller_runtime.passes.all")

    def drop(record: logging.LogRecord) -> bool:
        kept.records.append(record)
        return False

    {
        "the logger": lambda: logger.addHandler(kept),
        "a logger above it": lambda: above.addHandler(kept),
        "the logger's filter": lambda: logger.addFilter(drop),
        "the handler's filter": lambda: logging.root.handlers[0].addFilter(drop),
    }[place]()
    try:
        log.logger_from("passes.all").info("Seen", number=1)
        assert [vars(each)["number"] for each in kept.records] == [1]
        assert bool(stream.getvalue()) is ("filter" not in place)
    finally:
        for each in (above, logger):
            each.removeHandler(kept)
        logger.filters.clear()
        logging.root.handlers[0].filters.clear()
