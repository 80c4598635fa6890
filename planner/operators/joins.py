"""Joins: the pairs of rows that match, or the rows that have a match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, Protocol

from cql.bound import Expr
from cql.bound.text import all_keys_text, expression_text, keys_text
from cql.intervals import TimeDomain
from cql.sizes import size_text
from planner.costs import Estimate
from planner.json_codec import ExprField
from planner.logical import JoinType
from planner.operators.node import Adapted, Names, Operator, TimeDemand
from planner.operators.state_needs import Facts, InputRows, OwnState, SynopsisNeed, all_rows_of, by_keys

__all__ = [
    "AntiJoin",
    "BinaryJoin",
    "DualJoin",
    "EvictingJoin",
    "HalfJoin",
    "MJoin",
    "PartialJoin",
    "SelectiveJoin",
    "SemiJoin",
    "StreamJoin",
    "join_type",
]


class _OfPairs(Protocol):
    """A join of two inputs."""

    @property
    def left_keys(self) -> tuple[Expr, ...]: ...

    @property
    def right_keys(self) -> tuple[Expr, ...]: ...

    @property
    def residual(self) -> Expr | None: ...


def _condition(join: _OfPairs, inputs: Names) -> str:
    """Return which pairs match."""
    pairs = list(zip(join.left_keys, join.right_keys, strict=True))
    return keys_text(pairs, join.residual, *inputs) or " of all pairs"


def _of_keys(join: _OfPairs) -> Estimate:
    return Estimate(4.0, 1.0) if join.left_keys else Estimate(50.0, 10.0)


class BinaryJoin(Operator):
    """Pairs of rows with equal keys that satisfy the residual; outer joins pad with NULLs."""

    kind: Literal["binary-join"] = "binary-join"
    join: Literal["inner", "left", "right", "full"]
    left_keys: tuple[ExprField, ...]
    right_keys: tuple[ExprField, ...]
    residual: ExprField | None

    @property
    def views(self) -> tuple[str, ...]:
        return ("left", "right")

    @property
    def pair_condition(self) -> Expr | None:
        return None if self.left_keys else self.residual

    @property
    def loses_soundly(self) -> bool:
        return self.join == "inner"

    def headline(self, inputs: Names) -> str:
        kind = "" if self.join == "inner" else f"{self.join} "
        return f"{kind}binary-join{_condition(self, inputs)}"

    def estimate(self) -> Estimate:
        return _of_keys(self)

    def facts(self, below: Sequence[Facts]) -> Facts:
        growth, only_inserts = all_rows_of(below)
        return Facts(growth, only_inserts and self.join == "inner")

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        return InputRows("left", 0, self.left_keys), InputRows("right", 1, self.right_keys)

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return self.join == "inner" and all(below)

    def is_netted(self, below: Sequence[bool]) -> bool:
        return False


class PartialJoin(BinaryJoin):
    """An inner join of two windows that compares a part of the pairs, as `schedule` says.

    `windows` is how long they are, in ticks or in rows. What is found is a part of what a `binary-join` finds.
    """

    kind: str = ""  # type: ignore[assignment]
    schedule: str
    windows: tuple[int, int]
    seed: int

    adapts: ClassVar[Adapted] = "comparisons"
    counts_rows: ClassVar[bool]
    """Whether its windows count rows, so that rows that are lost before do not change how many a row finds."""
    usual_looks: ClassVar[float]
    """How many rows are looked at for a row, as a unit of the work of joins."""


class SelectiveJoin(PartialJoin):
    """An inner join that compares a row with a part of the other window only, as `schedule` says: some of its ages.

    `windows` is for how many ticks rows of each input are there. Rows are of types, by `types` of their input: pairs
    are worth what `utility` says, and rows of types whose pairs are worth more may look at more. What is found is a
    part of what a `binary-join` finds.
    """

    kind: Literal["selective-join"] = "selective-join"
    utility: ExprField | None = None
    types: tuple[tuple[ExprField, ...], tuple[ExprField, ...]] = ((), ())

    counts_rows: ClassVar[bool] = False
    usual_looks: ClassVar[float] = 1000.0

    def headline(self, inputs: Names) -> str:
        names = [*inputs[0], *inputs[1]]
        by = "" if self.utility is None else f", utility {expression_text(self.utility, names)}"
        return f"selective-join (as much as time allows{by}){_condition(self, inputs)}"

    def details(self, time: TimeDomain | None, users: Sequence[str]) -> Iterator[str]:
        yield "rows look at the ages of the other window that match most, and a few at all of them, to learn which"


class DualJoin(PartialJoin):
    """An inner join of windows of rows in which rows that find few others do not look for them, as `schedule` says.

    They are still found by others. `windows` is how many rows the windows have. What is found is a part of what a
    `binary-join` finds.
    """

    kind: Literal["dual-join"] = "dual-join"

    counts_rows: ClassVar[bool] = True
    usual_looks: ClassVar[float] = 40.0

    def headline(self, inputs: Names) -> str:
        return f"dual-join (as much as time allows){_condition(self, inputs)}"

    def details(self, time: TimeDomain | None, users: Sequence[str]) -> Iterator[str]:
        yield "rows that find fewest others do not look for them; they are found all the same"


class EvictingJoin(Operator):
    """Pairs of rows with equal keys that satisfy the residual, found among the rows that `memory` bytes can hold.

    Rows whose partners are least likely to come are given up before they end, by `policy`; `windows` is for how many
    ticks rows of each input can be there. The inputs share the memory, or have half of it each, as `allocation` says.
    What is found is a part of what a `binary-join` finds.
    """

    kind: Literal["evicting-join"] = "evicting-join"
    left_keys: tuple[ExprField, ...]
    right_keys: tuple[ExprField, ...]
    residual: ExprField | None
    policy: Literal["rand", "prob", "life"]
    memory: int
    allocation: Literal["variable", "fixed"]
    windows: tuple[int, int]
    seed: int

    adapts: ClassVar[Adapted] = "memory"

    @property
    def pools(self) -> tuple[tuple[int, ...], ...]:
        """The inputs that share memory; each pool has as much."""
        return ((0, 1),) if self.allocation == "variable" else ((0,), (1,))

    @property
    def loses_soundly(self) -> bool:
        return False

    def headline(self, inputs: Names) -> str:
        halves = ", half for each input" if self.allocation == "fixed" else ""
        held = f"{self.policy} in {size_text(self.memory)}{halves}"
        return f"evicting-join ({held}){_condition(self, inputs)}"

    def estimate(self) -> Estimate:
        return _of_keys(self)

    def facts(self, below: Sequence[Facts]) -> Facts:
        return all_rows_of(below)

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        held = f"rows of both inputs, as many as {size_text(self.memory)} hold"
        return (OwnState("rows", 0, held, "early, if others are more likely to match", "constant"),)

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return all(below)

    def is_netted(self, below: Sequence[bool]) -> bool:
        return False


class HalfJoin(Operator):
    """Left rows, by whether they have a match on the right."""

    left_keys: tuple[ExprField, ...]
    right_keys: tuple[ExprField, ...]
    residual: ExprField | None

    @property
    def views(self) -> tuple[str, ...]:
        return ("left",) if self.residual is None else ("left", "right")

    @property
    def pair_condition(self) -> Expr | None:
        return None if self.left_keys else self.residual

    def headline(self, inputs: Names) -> str:
        return f"{self.kind}{_condition(self, inputs)}"

    def estimate(self) -> Estimate:
        return _of_keys(self)

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        left = InputRows("left", 0, self.left_keys)
        if self.residual is not None:
            return left, InputRows("right", 1, self.right_keys)
        growth = by_keys(below[1].growth)
        held, leave = "how many rows have each key", "with the last row of a key"
        return left, OwnState("right", 1, held, leave, growth, self.right_keys)

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return False

    def is_netted(self, below: Sequence[bool]) -> bool:
        return False


class SemiJoin(HalfJoin):
    """The left rows that have a match on the right."""

    kind: Literal["semijoin"] = "semijoin"

    @property
    def loses_soundly(self) -> bool:
        return True

    def facts(self, below: Sequence[Facts]) -> Facts:
        return Facts(below[0].growth, all_rows_of(below).only_inserts)


class AntiJoin(HalfJoin):
    """The left rows that have no match on the right."""

    kind: Literal["antijoin"] = "antijoin"

    @property
    def loses_soundly(self) -> bool:
        return False

    def facts(self, below: Sequence[Facts]) -> Facts:
        return Facts(below[0].growth, False)


class MJoin(Operator):
    """A multiway join; what arrives at an input probes the others one after the other."""

    kind: Literal["mjoin"] = "mjoin"
    keys: tuple[tuple[ExprField, ...], ...]
    residual: ExprField | None

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(_role(at) for at in range(len(self.keys)))

    @property
    def loses_soundly(self) -> bool:
        return True

    def headline(self, inputs: Names) -> str:
        return f"mjoin on {all_keys_text(self.keys, self.residual, inputs)}"

    def estimate(self) -> Estimate:
        return Estimate(3.0 * (len(self.inputs) - 1), 1.0)

    def facts(self, below: Sequence[Facts]) -> Facts:
        return all_rows_of(below)

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        return [InputRows(_role(at), at, keys) for at, keys in enumerate(self.keys)]

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return all(below)

    def is_netted(self, below: Sequence[bool]) -> bool:
        return False


def _role(at: int) -> str:
    return f"input{at + 1}"


class StreamJoin(Operator):
    """Elements of the first input probe the relation of the second as it is at their instant."""

    kind: Literal["stream-join"] = "stream-join"
    left_keys: tuple[ExprField, ...]
    right_keys: tuple[ExprField, ...]
    residual: ExprField | None

    @property
    def views(self) -> tuple[str, ...]:
        return ("relation",)

    @property
    def pair_condition(self) -> Expr | None:
        return None if self.left_keys else self.residual

    @property
    def loses_soundly(self) -> bool:
        return True

    def headline(self, inputs: Names) -> str:
        return f"stream-join{_condition(self, inputs)}"

    def estimate(self) -> Estimate:
        return _of_keys(self)

    def facts(self, below: Sequence[Facts]) -> Facts:
        return Facts("stream", True)

    def synopses(self, below: Sequence[Facts], inputs: Names) -> Sequence[SynopsisNeed]:
        return (InputRows("relation", 1, self.right_keys),)

    def ends_are_final(self, below: Sequence[bool]) -> bool:
        return True

    def is_netted(self, below: Sequence[bool]) -> bool:
        return False

    def time_demand(self, reads_streams: Sequence[bool]) -> TimeDemand:
        return super().time_demand(reads_streams) if reads_streams[1] else TimeDemand("probe")


_JOIN_TYPES: dict[JoinType, type[Operator]] = {JoinType.SEMI: SemiJoin, JoinType.ANTI: AntiJoin}


def join_type(kind: JoinType) -> type[Operator]:
    """Return the operator class of a join."""
    return _JOIN_TYPES.get(kind, BinaryJoin)
