"""A publish whose answer is lost: it landed and the client saw an error, or the other way round.

Either way the product must find out by looking, and go on as if the answer had come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import odi_audit as odi
from odi_audit.committer import publishing
from odi_audit.errors import CatalogUnavailable, CommitConflict, OutcomeUnknown
from tests.support.cases import rows
from tests.support.checker import kinds, read_ledger
from tests.support.faults import DENIED, LostAnswer, before_publishing, losing
from tests.support.work import Where, Work, carry_out

if TYPE_CHECKING:
    from tests.support.scene import Scene

ERRORS = ["CommitStateUnknownException", "RuntimeException"]


def works(name: str) -> dict[str, Work]:
    job = f"lost/{name.replace('.', '_')}"
    given, next_ = rows(10, 20, "new"), ("src", 10, 20)
    return {
        "append": Work(job=job, op="append", table=name, rows=given, offsets=next_),
        "upsert": Work(job=job, op="upsert", table=name, rows=rows(5, 15, "u"), offsets=next_),
        "delete": Work(job=job, op="delete", table=name, where=Where(part=0), once="d"),
    }


def table(scene: Scene, name: str) -> str:
    job = f"lost/{name.replace('.', '_')}"
    scene.do(Work(job=job, op="create_table", table=name))
    scene.do(Work(job=job, op="append", table=name, rows=rows(0, 10, "a"), offsets=("src", 0, 10)))
    return name


@pytest.mark.parametrize("lands", [True, False], ids=["landed", "not-landed"])
@pytest.mark.parametrize(
    ("op", "error"), [("append", ERRORS[0]), ("append", ERRORS[1]), ("upsert", ERRORS[0]),
                      ("delete", ERRORS[0])]
)  # fmt: skip
def test_a_lost_answer_is_settled_by_looking(
    scene: Scene, op: str, error: str, lands: bool
) -> None:
    name = table(scene, f"l.{op}_{error}_{lands}".lower())
    work = works(name)[op]
    with losing(LostAnswer(lands=lands, error=error)) as fault:
        receipt = scene.do(work)
    assert fault.fired == 1
    assert receipt.fresh
    assert kinds(read_ledger(scene.place.ledger), receipt.batch) == ["intent", "staged", "landed"]
    assert scene.do_again(work).fresh is False
    assert scene.problems(name) == []


@pytest.mark.parametrize("op", ["append", "upsert", "evolve_schema"])
def test_a_swap_that_is_denied_although_it_was_made_is_found(scene: Scene, op: str) -> None:
    """A connection pool that repeats a lost request is told that the table has moved: by itself."""
    name = table(scene, f"l.denied_{op}")
    work = works(name).get(op) or Work(job="lost/denied", op=op, table=name)
    with losing(LostAnswer(lands=True, error=DENIED)) as fault:
        receipt = scene.do(work)
    assert fault.fired == 1
    assert receipt.fresh
    assert "abandoned" not in kinds(read_ledger(scene.place.ledger), receipt.batch)
    assert scene.problems(name) == []


@pytest.mark.parametrize("lands", [True, False], ids=["happened", "did-not"])
def test_a_lost_answer_to_a_schema_change_is_settled_by_looking(scene: Scene, lands: bool) -> None:
    name = table(scene, f"l.evolve_{lands}".lower())
    with losing(LostAnswer(lands=lands, error=ERRORS[0])) as fault:
        receipt = scene.do(Work(job="lost/evolve", op="evolve_schema", table=name))
    assert fault.fired == 1
    assert kinds(read_ledger(scene.place.ledger), receipt.batch) == ["intent", "schema-change"]
    assert scene.spark.table(f"lake.{name}").columns == ["id", "part", "v", "note"]
    assert scene.problems(name) == []


@pytest.mark.parametrize("lives", [True, False], ids=["next-run", "next-process"])
@pytest.mark.parametrize("lands", [True, False], ids=["landed", "not-landed"])
def test_an_outcome_that_cannot_be_looked_up_is_unknown_until_reconcile_looks(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, lands: bool, lives: bool
) -> None:
    name = table(scene, f"l.unknown_{lands}_{lives}".lower())
    work = works(name)["upsert"]
    gone: list[str] = []

    def load_nothing(*_: object) -> None:
        gone.append(name)
        raise CatalogUnavailable("the catalog is gone")

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "load", load_nothing)
        patch.setattr(publishing, "LOOK_WAIT_S", 0)
        with (
            losing(LostAnswer(lands=lands, error=ERRORS[0])) as fault,
            pytest.raises(OutcomeUnknown) as caught,
        ):
            scene.do_again(work)
    assert fault.fired == 1
    assert len(gone) == publishing.LOOK_ATTEMPTS_MAX
    assert int(caught.value.exit_status) == 5
    batch = str(caught.value.facts["batch"])
    assert kinds(read_ledger(scene.place.ledger), batch) == ["intent", "staged", "unknown"]
    before_reconcile = scene.rows(name)
    if not lives:
        scene.lake.close()  # the process that did not know is gone
    scene.counted(work)
    assert scene.do_again(work).fresh is False
    assert kinds(read_ledger(scene.place.ledger), batch)[-1] == "landed"
    assert (before_reconcile == scene.rows(name)) == lands
    assert scene.problems(name) == []


def test_a_twin_that_was_outrun_after_main_had_moved_is_told_so(scene: Scene) -> None:
    """First another job moves main, then a copy of the same batch lands: two restarts at once."""
    name = table(scene, "l.outrun")
    work = works(name)["append"]
    other = Work(
        job="lost/other", op="append", table=name, rows=rows(50, 55, "o"), offsets=("src", 0, 5)
    )

    with before_publishing(lambda: scene.do(other), lambda: scene.do(work)) as ran:
        receipt = scene.do_again(work)
    assert ran == [0, 1]
    assert receipt.fresh is False
    assert scene.do_again(work).fresh is False
    assert scene.problems(name) == []


@pytest.mark.parametrize("op", ["append", "upsert"])
def test_a_batch_that_is_outrun_too_often_gives_up_cleanly(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    name = table(scene, f"l.gives_up_{op}")
    work = works(name)[op]
    limit = scene.lake.settings.limits.stage_attempts_max
    monkeypatch.setattr(publishing, "APPEND_ATTEMPTS_FACTOR", 1)

    def overtake(number: int) -> None:
        start = 100 + 5 * number
        scene.do(
            Work(
                job="lost/busy", op="append", table=name, rows=rows(start, start + 5, "o"),
                offsets=("src", start, start + 5),
            )
        )  # fmt: skip

    with (
        before_publishing(*[lambda n=n: overtake(n) for n in range(limit)]) as ran,
        pytest.raises(CommitConflict),
    ):
        scene.do_again(work)
    assert len(ran) == limit
    assert scene.problems(name) == []
    assert scene.do(work).fresh
    assert scene.problems(name) == []


def test_the_rest_of_a_batch_over_two_tables_is_recorded_when_rolling_forward_stops_halfway(
    scene: Scene,
) -> None:
    """Rolling forward publishes the first table; the second moves just before it is published."""
    names = [table(scene, "l.half_raw"), table(scene, "l.half_curated")]
    work = Work(
        job="lost/half", op="batch", table=names[0], second_table=names[1],
        rows=rows(10, 20, "new"), offsets=("src", 0, 10),
    )  # fmt: skip
    other = Work(
        job="lost/other", op="append", table=names[1], rows=rows(50, 55, "o"),
        offsets=("src", 0, 5),
    )  # fmt: skip
    # It has reconciled before there was anything to reconcile, and waits to overtake.
    gate = scene.children.folder / "half"
    waiting = scene.children.start(other, wait_at="planned", gate=gate)
    waiting.wait_for("waiting")
    dead = scene.children.start(work, kill_at="gated")
    dead.wait()
    assert dead.fired == "gated"

    def overtake() -> None:
        gate.touch()
        assert waiting.wait() == 0, waiting.said()
        scene.counted(other)

    with (
        before_publishing(lambda: None, overtake) as ran,
        odi.run("lost/third", lake=scene.lake, spark=scene.spark),
    ):
        pass
    assert ran == [0, 1]
    scene.counted(work)
    with odi.run(work.job, lake=scene.lake, spark=scene.spark) as run:
        carry_out(run, work)
    assert scene.problems(*names) == []
