"""The error tree: as drawn, with stable codes, and whole after a pickle."""

from __future__ import annotations

import copy
import json
import pickle
import re
from typing import Any

import pytest

from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    ErrorClass,
    ErrorTable,
    IncarnationChanged,
    NotAuthorized,
    OffsetOutOfRange,
    Partition,
    PermanentError,
    Problem,
    StreamError,
    StreamTimeout,
    TopicNotFound,
    TransientError,
    errors,
)

TREE = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, StreamError)
]
STANDARD = {
    kind.__name__: kind
    for kind in (
        ConnectionError,
        ImportError,
        LookupError,
        NotImplementedError,
        OSError,
        PermissionError,
        TimeoutError,
        TypeError,
        ValueError,
    )
}


def drawn() -> dict[str, tuple[str, str, str | None]]:
    """Of each name in the picture: its parent, class word and standard type."""
    found: dict[str, tuple[str, str, str | None]] = {}
    above: list[str] = ["StreamError"]
    pattern = re.compile(r"^    ([│ ]*)[├└]── (\w+) +(\w+)(?: +(\w+))?")
    for line in (errors.__doc__ or "").splitlines():
        if match := pattern.match(line):
            depth = len(match[1]) // 4 + 1
            standard = match[4] if match[4] in STANDARD else None
            found[match[2]] = (above[depth - 1], match[3], standard)
            above[depth:] = [match[2]]
    return found


def test_the_picture_shows_every_error() -> None:
    assert {kind.__name__ for kind in TREE} == {"StreamError", *drawn()}


@pytest.mark.parametrize("kind", TREE[1:], ids=lambda kind: kind.__name__)
def test_the_picture_is_true(kind: type[StreamError]) -> None:
    parent, word, standard = drawn()[kind.__name__]
    assert kind.__bases__[0].__name__ == parent
    assert kind.error_class.value == word
    others = [base.__name__ for base in kind.__bases__[1:]]
    assert others == ([] if standard is None else [standard])


def test_codes_are_stable() -> None:
    # Dashboards and exit statuses rely on these: add, never change.
    assert sorted(kind.code for kind in TREE) == [
        "broken_plugin",
        "checkpoint_failed",
        "closed",
        "config",
        "connection_failed",
        "contract_broken",
        "corrupt_data",
        "data_loss",
        "decode",
        "duplicate_plugin",
        "epoch_in_the_past",
        "epoch_marker_lost",
        "epoch_mismatch",
        "error_budget_exceeded",
        "format_refused",
        "guarantee_refused",
        "incarnation_changed",
        "message_too_large",
        "misuse",
        "not_authorized",
        "not_installed",
        "offset_out_of_range",
        "partial_metadata",
        "partition_vanished",
        "permanent",
        "plugin",
        "plugin_blocked",
        "plugin_too_new",
        "position_refused",
        "producer_failed",
        "reader_failed",
        "schema_mismatch",
        "schema_unknown",
        "spool_full",
        "storage_failed",
        "stream_error",
        "timeout",
        "topic_not_found",
        "transient",
        "unknown_plugin",
        "unknown_stream",
        "unsupported",
        "untranslated",
        "writer_fenced",
    ]


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_only_what_is_transient_is_tried_again(kind: type[StreamError]) -> None:
    assert kind("x").retryable == issubclass(kind, TransientError)
    assert kind("x").retryable == (kind.error_class is ErrorClass.TRANSIENT)


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, None])
def test_an_error_pickles_with_its_attributes(
    kind: type[StreamError], again: Any
) -> None:
    error = kind(
        "it broke",
        stream="clicks",
        partition=Partition("clicks", 3),
        offset=17,
        remedy="mend it",
    )
    error.attempts = 4
    error.add_note("seen twice")
    other = again(error) if again else pickle.loads(pickle.dumps(error))
    assert type(other) is kind
    assert vars(other) == vars(error)
    assert str(other) == str(error)
    assert other.args == ("it broke",)
    assert other.to_dict() == error.to_dict()


def test_extra_arguments_pickle_too() -> None:
    problem = Problem("streamType", "is required", "clicks.toml:3", "write it")
    for error in (
        ConfigError("1 problem", problems=[problem], stream="clicks"),
        OffsetOutOfRange("gone", earliest=5, latest=9, offset=2),
        IncarnationChanged("anew", expected="a", found="b"),
    ):
        other = pickle.loads(pickle.dumps(error))
        assert vars(other) == vars(error)
        assert other.to_dict() == error.to_dict()


def test_of_a_foreign_cause_only_the_text_crosses() -> None:
    class Unpicklable(Exception):
        def __reduce__(self) -> Any:
            raise RuntimeError

    error = ConnectionFailed("lost")
    error.__cause__ = Unpicklable("peer hung up")
    other = pickle.loads(pickle.dumps(error))
    assert other.__cause__ is None
    assert other.cause_text == "Unpicklable: peer hung up"


def test_a_text_that_was_masked_is_not_replaced_by_the_cause() -> None:
    error = ConnectionFailed("lost")
    error.__cause__ = RuntimeError("password is hunter2")
    error.cause_text = "RuntimeError: password is ***"
    assert b"hunter2" not in pickle.dumps(error)


def test_a_cause_of_this_tree_crosses_whole() -> None:
    error = PermanentError("gave up")
    error.__cause__ = StreamTimeout("slow", offset=3)
    other = pickle.loads(pickle.dumps(error))
    assert isinstance(other.__cause__, StreamTimeout)
    assert other.__cause__.offset == 3


# --- what it says -------------------------------------------------------------------


def test_an_error_reports_what_where_and_what_to_do() -> None:
    error = TopicNotFound(
        "topic 'clikcs' does not exist",
        stream="clicks",
        partition=Partition("clicks", 0),
        offset=0,
        remedy="did you mean 'clicks'?",
    )
    assert str(error) == (
        "topic 'clikcs' does not exist (stream 'clicks', partition clicks-0, "
        "offset 0); did you mean 'clicks'?"
    )
    assert str(TopicNotFound("gone")) == "gone"


def test_a_place_is_filled_in_but_never_overwritten() -> None:
    error = TopicNotFound("gone", stream="mine", offset=0)
    same = error.at(stream="other", partition=Partition("t", 1), offset=7)
    assert same is error
    assert (error.stream, error.partition, error.offset) == (
        "mine",
        Partition("t", 1),
        0,
    )


def test_an_error_as_plain_values() -> None:
    error = OffsetOutOfRange(
        "gone", earliest=5, latest=None, partition=Partition("t", 1), offset=2
    )
    assert json.loads(json.dumps(error.to_dict())) == {
        "error": "offset_out_of_range",
        "class": "data_loss",
        "what": "gone",
        "stream": None,
        "partition": "t-1",
        "offset": 2,
        "remedy": "set `out.of.range` to earliest or latest to continue with a loss "
        "record",
        "earliest": 5,
        "latest": None,
    }


def test_a_configuration_error_shows_every_problem() -> None:
    problems = [
        Problem("a.b", "is required", suggestion="for instance 3"),
        Problem("c", "is 'x'", "clicks.toml:4", level="warning"),
    ]
    error = ConfigError("2 problems", problems=problems, stream="clicks")
    assert str(error) == (
        "2 problems (stream 'clicks')\n"
        "  a.b: is required; for instance 3\n"
        "  c: is 'x' [clicks.toml:4]"
    )
    assert error.to_dict()["problems"] == [
        {
            "key": "a.b",
            "what": "is required",
            "origin": "",
            "suggestion": "for instance 3",
            "level": "error",
        },
        {
            "key": "c",
            "what": "is 'x'",
            "origin": "clicks.toml:4",
            "suggestion": None,
            "level": "warning",
        },
    ]


# --- translation --------------------------------------------------------------------


class CodedError(Exception):
    def __init__(self, code: object) -> None:
        super().__init__(f"code {code}")
        self.code = code


TABLE = ErrorTable(
    {
        OSError: ConnectionFailed,
        PermissionError: NotAuthorized,
        CodedError: PermanentError,
    },
    codes={3: TopicNotFound},
    code_of=lambda error: getattr(error, "code", None),
)


@pytest.mark.parametrize(
    ("foreign", "ours"),
    [
        (OSError("x"), ConnectionFailed),
        (PermissionError("x"), NotAuthorized),
        (BrokenPipeError("x"), ConnectionFailed),
        (CodedError(3), TopicNotFound),
        (CodedError(4), PermanentError),
        (CodedError(None), PermanentError),
        (KeyError("x"), None),
    ],
)
def test_the_most_specific_entry_wins(
    foreign: Exception, ours: type[StreamError] | None
) -> None:
    found = TABLE(foreign)
    if ours is None:
        assert found is None
    else:
        assert type(found) is ours
        assert found.what == f"{type(foreign).__name__}: {foreign}"


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """An error as it is caught, from a cause or while another one was handled."""
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def while_handling(cause: BaseException, error: BaseException) -> BaseException:
    try:
        raise cause
    except BaseException:
        try:
            raise error
        except BaseException as caught:
            return caught


RESET = ErrorTable({ConnectionError: ConnectionFailed, PermissionError: NotAuthorized})


def test_causes_are_looked_through() -> None:
    cause = ConnectionResetError("gone")
    for error in (
        raised(RuntimeError("wrapped"), cause),
        raised(ValueError("outer"), raised(RuntimeError("wrapped"), cause)),
        while_handling(cause, RuntimeError("wrapped")),
    ):
        found = RESET(error)
        assert isinstance(found, ConnectionFailed)
        assert found.what.endswith("(caused by ConnectionResetError: gone)")
    outer = raised(PermissionError("no"), cause)
    assert isinstance(RESET(outer), NotAuthorized)  # the outermost that is known
    assert RESET(raised(RuntimeError("x"), ValueError("y"))) is None


def test_cause_that_was_denied_is_not_looked_at() -> None:
    error = while_handling(ConnectionResetError("gone"), RuntimeError("mine"))
    assert error.__context__ is not None
    error.__suppress_context__ = True  # as `from None` does
    assert RESET(error) is None


def test_causes_in_a_circle_or_without_end_come_to_an_end() -> None:
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__cause__, two.__cause__ = two, one
    assert RESET(one) is None
    error: BaseException = ConnectionResetError("deep")
    for _ in range(10_000):
        error = raised(RuntimeError("wrapped"), error)
    assert RESET(error) is None


def test_errors_of_the_tree_are_no_foreign_cause() -> None:
    assert RESET(raised(RuntimeError("x"), ConnectionFailed("inner"))) is None
