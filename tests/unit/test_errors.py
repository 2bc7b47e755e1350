"""Errors: every code means one thing, and every error says what to do next."""

from __future__ import annotations

import inspect
import pickle
import re
from collections.abc import Iterator

import pytest

from odi_audit import errors
from odi_audit.errors import Exit, OdiError, Refused, Retry, UsageError


def every() -> Iterator[type[OdiError]]:
    for _, found in inspect.getmembers(errors, inspect.isclass):
        if issubclass(found, OdiError):
            yield found


def test_codes_are_unique_and_well_formed() -> None:
    codes = [kind.code for kind in every()]
    assert len(codes) == len(set(codes)) > 30
    assert all(re.fullmatch(r"ODI-[A-Z]\d\d", code) for code in codes)


def test_codes_that_were_given_out_keep_their_meaning() -> None:
    pinned = {
        "ODI-U01": "UsageError", "ODI-U02": "OffsetsMissing", "ODI-K01": "TableNotFound",
        "ODI-K02": "CatalogUnavailable", "ODI-K05": "StorageError", "ODI-L01": "LedgerMissing",
        "ODI-L02": "LedgerReadOnly", "ODI-L03": "LedgerLocked", "ODI-L04": "LedgerTooNew",
        "ODI-L05": "LedgerBroken", "ODI-C01": "CommitConflict", "ODI-C02": "BatchReused",
        "ODI-C03": "OutcomeUnknown", "ODI-C04": "WriteFailed", "ODI-C05": "NotSupported",
        "ODI-G01": "SchemaMismatch", "ODI-G02": "BadKeys", "ODI-G03": "RuleBroken",
        "ODI-G04": "OffsetGap", "ODI-G05": "OffsetOverlap", "ODI-G06": "SourceChanged",
        "ODI-G07": "CountMismatch", "ODI-G08": "StagingBroken",
    }  # fmt: skip
    found = {kind.code: kind.__name__ for kind in every()}
    assert {code: found.get(code) for code in pinned} == pinned


@pytest.mark.parametrize("kind", list(every()), ids=lambda kind: kind.__name__)
def test_every_error_has_its_own_meaning_and_a_fitting_status(kind: type[OdiError]) -> None:
    assert kind.__doc__
    assert kind is OdiError or "code" in vars(kind)
    assert isinstance(kind.retry, Retry)
    family = kind.code[4]
    allowed = {
        "U": {Exit.USAGE},
        "S": {Exit.CONFIG, Exit.CONFLICT},
        "J": {Exit.CONFIG},
        "G": {Exit.FINDINGS},
    }.get(family, set(Exit) - {Exit.OK})
    assert kind.exit_status in allowed


def test_statuses_are_those_of_the_command_line() -> None:
    assert {status.name: int(status) for status in Exit} == {
        "OK": 0, "FINDINGS": 1, "USAGE": 2, "CONFIG": 3, "NOT_FOUND": 4, "UNKNOWN": 5,
        "CONFLICT": 6, "BUG": 70,
    }  # fmt: skip
    assert errors.OutcomeUnknown.exit_status is Exit.UNKNOWN
    assert errors.OutcomeUnknown.retry is Retry.AFTER_RECONCILE
    assert errors.CommitConflict.retry is Retry.SAFE


def test_every_refusal_is_a_refusal_and_nothing_else_is() -> None:
    refusals = {kind for kind in every() if kind.code.startswith("ODI-G")}
    assert refusals == {kind for kind in every() if issubclass(kind, Refused)}


def test_the_text_has_code_message_samples_and_the_next_step() -> None:
    error = errors.BadKeys("two keys", hint="pass order_by=", samples=['{"id":1}'], null_keys=0)
    assert str(error) == ('ODI-G02: two keys\n  for example: {"id":1}\n  next: pass order_by=')
    assert "for example" not in str(errors.BadKeys("two keys", samples=[]))
    assert str(UsageError("no")) == "ODI-U01: no"


def test_an_error_survives_the_way_between_processes() -> None:
    error = errors.BadKeys("two keys", hint="pass order_by=", samples=["s"], null_keys=3)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is errors.BadKeys
    assert (back.message, back.hint, back.facts) == (error.message, error.hint, error.facts)
    assert str(back) == str(error)
