"""Lost answers: a catalog that does, or does not do, what it was asked, and then says nothing.

The one place where a fake is right: no real catalog loses an answer on demand. The fake stands
where the answer comes from, behind the product's own reading of Java's errors, and throws real
Java exceptions. Each fault counts how often it fired.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from odi_audit.spark import publish
from odi_audit.spark.publish import Swap
from odi_audit.spark.stage import Stage

DENIED = "CommitFailedException"
"""The same request once more: the catalog truly answers that the table is no longer that."""


@dataclass(slots=True, kw_only=True)
class LostAnswer:
    """Loses the answers to the first ``times`` publishes; ``lands`` says what really happened.

    ``error`` is the Java exception that the client sees in place of the answer.
    """

    lands: bool
    error: str
    times: int = 1
    fired: int = 0

    def commit(self, stage: Stage, base: Any, made: Any) -> None:
        self.fired += 1
        if self.lands:
            stage.target.operations.commit(base, made)
        if self.error == DENIED:
            stage.target.operations.commit(base, made)
        throw(stage, self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operations:
    """Iceberg's TableOperations, with the fault in ``commit``."""

    fault: LostAnswer
    stage: Stage

    def commit(self, base: Any, made: Any) -> None:
        self.fault.commit(self.stage, base, made)


@contextmanager
def losing(fault: LostAnswer) -> Iterator[LostAnswer]:
    """Put a fault between the product and its catalog."""
    real = publish.publish

    def publish_with_fault(stage: Stage) -> Swap:
        if fault.fired >= fault.times:
            return real(stage)
        faulty = _Operations(fault=fault, stage=_like(stage))
        target = stage.target
        stage.target = dataclasses.replace(target, operations=faulty)
        try:
            return real(stage)
        finally:
            stage.target = target

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish, "publish", publish_with_fault)
        yield fault


def throw(stage: Stage, kind: str) -> None:
    """Have the JVM throw an exception, so that the client meets a real one."""
    java = stage.target.jvm.java
    cause = java.java.lang.RuntimeException("the connection was closed")
    thrown = (
        java.org.apache.iceberg.exceptions.CommitStateUnknownException(cause)
        if kind == "CommitStateUnknownException"
        else cause
    )
    java.java.util.concurrent.CompletableFuture.failedFuture(thrown).join()
    raise AssertionError("the JVM did not throw")


@contextmanager
def before_publishing(*actions: Any) -> Iterator[list[int]]:
    """Run one action before each of the first publishes; yields the numbers of those that ran."""
    real = publish.publish
    ran: list[int] = []
    waiting = list(actions)

    def publish_after_action(stage: Stage) -> Swap:
        if waiting:
            action = waiting.pop(0)
            ran.append(len(ran))
            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(publish, "publish", real)
                action()
        return real(stage)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publish, "publish", publish_after_action)
        yield ran


class _Copy:
    """What ``throw`` and the real commit need of a stage whose target is about to be replaced."""

    def __init__(self, target: Any) -> None:
        self.target = target


def _like(stage: Stage) -> Any:
    return _Copy(stage.target)
