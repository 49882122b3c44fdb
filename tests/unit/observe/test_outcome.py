import itertools
from typing import get_args

import pytest

from netspy import errors
from netspy.observe.outcome import (
    OUTCOMES,
    Crash,
    ExitCode,
    Outcome,
    Stop,
    crash_of,
    exit_code,
    exit_code_of,
    outcome_of,
)

TABLE = [
    # what happened                                             outcome            exit code
    ({"ok": 10, "failed": 0}, "finished", 0),
    ({"ok": 10, "failed": 9}, "finished", 0),
    ({"ok": 0, "failed": 0}, "nothing_to_do", 0),
    ({"ok": 0, "failed": 0, "other": 3}, "finished", 0),
    ({"ok": 0, "failed": 10}, "all_failed", 6),
    ({"ok": 0, "failed": 10, "other": 3}, "all_failed", 6),
    ({"ok": 10, "failed": 0, "items": 0, "items_failed": 50}, "all_failed", 6),
    ({"ok": 10, "failed": 0, "items": 1, "items_failed": 50}, "finished", 0),
    ({"ok": 10, "failed": 0, "stop": "limit"}, "limit", 0),
    ({"ok": 10, "failed": 0, "stop": "code"}, "stopped", 0),
    ({"ok": 0, "failed": 0, "stop": "code"}, "stopped", 0),
    ({"ok": 0, "failed": 10, "stop": "limit"}, "all_failed", 6),
    ({"ok": 10, "failed": 0, "stop": "SIGINT"}, "stopped", 130),
    ({"ok": 0, "failed": 10, "stop": "SIGINT"}, "stopped", 130),
    ({"ok": 0, "failed": 0, "stop": "SIGTERM"}, "stopped", 143),
    ({"ok": 10, "failed": 0, "stop": "forced"}, "forced", 137),
    ({"ok": 10, "failed": 0, "stop": "forced", "crash": "store"}, "forced", 137),
    ({"ok": 0, "failed": 0, "crash": "config"}, "config_error", 3),
    ({"ok": 5, "failed": 0, "crash": "seeding"}, "seeding_failed", 4),
    ({"ok": 5, "failed": 0, "crash": "store", "stop": "SIGINT"}, "store_lost", 5),
    ({"ok": 5, "failed": 0, "crash": "internal"}, "failed", 7),
]


@pytest.mark.parametrize(("facts", "outcome", "code"), TABLE)
def test_how_a_run_ended_and_what_the_caller_is_told(facts, outcome, code):
    assert outcome_of(**facts) == outcome
    assert exit_code(outcome, stop=facts.get("stop", "")) == code


def test_nothing_to_do_is_an_error_only_when_asked():
    assert exit_code("nothing_to_do", fail_on_nothing_to_do=True) == ExitCode.NOTHING_TO_DO == 9
    assert exit_code("finished", fail_on_nothing_to_do=True) == 0


def test_every_combination_has_an_outcome_and_a_code_and_success_never_hides_a_crash():
    reached = set()
    for crash, stop, ok, failed, bad in itertools.product(
        get_args(Crash), get_args(Stop), (0, 1), (0, 1), (0, 1)
    ):
        outcome = outcome_of(crash=crash, stop=stop, ok=ok, failed=failed, items_failed=bad)
        reached.add(outcome)
        code = exit_code(outcome, stop=stop)
        assert isinstance(code, ExitCode)
        if crash or stop in {"SIGINT", "SIGTERM", "forced"}:
            assert code != 0
    # That another master runs is known before there is anything to judge.
    assert reached | {"not_master"} == set(get_args(Outcome)) == set(OUTCOMES)
    assert exit_code("not_master") == ExitCode.NOT_MASTER


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConfigError("x"), 3),
        (errors.MissingExtraError("x", "redis"), 3),
        (errors.UnknownCallbackError("x"), 3),
        (errors.SeedingError("x"), 4),
        (errors.StoreLostError("x"), 5),
        (errors.StoreUnavailableError("x"), 5),
        (errors.InvalidUrlError("x"), 3),
        (errors.HttpStatusError(503), 6),
        (RuntimeError("x"), 7),
        (KeyboardInterrupt(), 130),
    ],
)
def test_the_exit_code_of_an_exception(error, code):
    assert exit_code_of(error) == code


def test_no_exception_is_no_crash():
    assert crash_of(None) == ""


def test_every_exit_code_is_explained_to_readers_of_the_source():
    """1 is Python's own for a traceback, so it must not mean anything here."""
    assert {int(code) for code in ExitCode} == {0, 2, 3, 4, 5, 6, 7, 8, 9, 129, 130, 137, 143}
