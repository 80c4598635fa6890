"""What a checkpoint knows of the network that it belongs to: its queries, its shape, its static relations.

A query that joins a network while it runs gets a new epoch: it sees what its sources bring from then on, and nothing
that other queries have kept from before, so that its answers never depend on its company. Queries that stay keep
their epochs, and with them the ids of their operators and stores, under which their state is found. The number of
stages and of buckets is fixed when a network is made, because state is kept by them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cql.catalog import Catalog, QueryDef, RelationDef, StreamDef
from cql.errors import Code, CqlError, fail
from cql.secrets import shown_options
from cql.service import service_level
from planner import operators as op
from planner.network import compile_definition
from planner.plan import Plan, QueryPlan, combine
from runtime.connectors.result_files import write_atomically
from runtime.network.layout import NetworkLayout
from shedding.insert_drops import compile_all, compile_registered, units_of_query

FORMAT_VERSION = 2

_FILE = "network.json"


class Member(BaseModel):
    """A query of a network: what it means, and since when and how it runs."""

    model_config = ConfigDict(frozen=True)

    meaning: str
    epoch: int = 0
    spread: bool = True
    units: op.Units | None = None
    """The units of time that it loses, if it sheds."""


class NetworkRecord(BaseModel):
    """The network of a checkpoint, as the file in it says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = FORMAT_VERSION
    buckets: int
    stages: int
    epochs: int = 0
    queries: dict[str, Member]
    static: dict[str, int] = Field(default_factory=dict, description="the version of each static relation's contents")
    plan: Plan

    @staticmethod
    def load(folder: Path) -> NetworkRecord | None:
        """Return what a checkpoint knows; None if it is new."""
        path = folder / _FILE
        try:
            text = path.read_text()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(folder, str(error.strerror)) from None
        try:
            version = json.loads(text)["version"]
            if version != FORMAT_VERSION:
                raise _unusable(folder, f"it was made by another version of this program (its format is {version})")
            return NetworkRecord.model_validate_json(text)
        except (ValueError, KeyError, TypeError, ValidationError):
            raise _unusable(folder, f"its file {_FILE} cannot be read") from None

    def save(self, folder: Path) -> None:
        """Write the record, as a whole or not at all."""
        write_atomically(folder / _FILE, self.model_dump_json().encode())


@dataclass(frozen=True)
class NetworkChange:
    """What becomes of a network that gets another set of queries."""

    record: NetworkRecord
    kept: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Queries of a known name that mean something else now: they begin anew."""
    dropped: tuple[str, ...] = ()
    squeezed: tuple[str, ...] = ()
    """Queries that run in one bucket, because the network has too few stages to spread them."""

    @property
    def is_any(self) -> bool:
        """Tell whether anything changes."""
        return bool(self.added or self.changed or self.dropped)

    def given_up(self, before: NetworkRecord | None) -> list[str]:
        """Return the stores of the network before whose contents nobody can use any more."""
        if before is None:
            return []
        left = {store.id for store in self.record.plan.stores}
        return [store.id for store in before.plan.stores if store.id not in left]

    def notes(self, before: NetworkRecord | None) -> list[str]:
        """Return what somebody who asks for the change should know of it, a line each."""
        found = [f"{name} begins anew: it means something else than before" for name in self.changed]
        lost = self.given_up(before)
        if lost:
            found.append(f"the contents of {len(lost)} {_stores(lost)} are given up: {', '.join(lost)}")
        return found + [
            f"{name} runs in one bucket: the network has too few stages to spread it; a new checkpoint would have them"
            for name in self.squeezed
        ]


def changed(before: NetworkRecord | None, catalog: Catalog, queries: Sequence[QueryDef], buckets: int) -> NetworkChange:
    """Return the network of some queries, those that it had before with the state that they have."""
    share = catalog.settings.sharing == "on"
    found = {query.name: _meaning(catalog, query, compile_definition(query, share)) for query in queries}
    if before is None:
        plan = combine(compile_all(queries, share))
        members = {name: Member(meaning=meaning, units=units_of_query(plan, name)) for name, meaning in found.items()}
        stages = NetworkLayout(plan, buckets).levels
        return NetworkChange(
            NetworkRecord(buckets=buckets, stages=stages, queries=members, plan=plan), added=tuple(found)
        )
    epoch = before.epochs + 1
    members, plans, squeezed = {}, [], []
    for query in queries:
        known = before.queries.get(query.name)
        if known is not None and known.meaning == found[query.name]:
            own = [] if known.units is None else [known.units]
            plans.append(compile_registered(query, share, epoch=known.epoch, spread=known.spread, known=own))
            members[query.name] = known
            continue
        others = [member.units for member in members.values() if member.units is not None]
        compiled, spread = compile_registered(query, share, epoch=epoch, known=others), True
        if NetworkLayout(combine([compiled]), before.buckets).levels > before.stages:
            compiled = compile_registered(query, share, epoch=epoch, spread=False, known=others)
            spread = False
            squeezed.append(query.name)
        plans.append(compiled)
        units = units_of_query(combine([compiled]), query.name)
        members[query.name] = Member(meaning=found[query.name], epoch=epoch, spread=spread, units=units)
    record = before.model_copy(
        update={
            "queries": members,
            "plan": combine(plans),
            "epochs": epoch if any(member.epoch == epoch for member in members.values()) else before.epochs,
        }
    )
    return NetworkChange(
        record,
        kept=tuple(name for name in members if members[name] is before.queries.get(name)),
        added=tuple(name for name in members if name not in before.queries),
        changed=tuple(n for n in members if n in before.queries and members[n] is not before.queries[n]),
        dropped=tuple(name for name in before.queries if name not in members),
        squeezed=tuple(squeezed),
    )


def source_name(table: StreamDef | RelationDef, epoch: int = 0) -> str:
    """Return the name under which a checkpoint knows how far a table was read: that of its rows, not of how fast.

    The log of a relation is read from its beginning for each epoch.
    """
    where: object = None
    if table.source is not None:
        options = {
            key.casefold(): text for key, text in shown_options(table.source.format, table.source.options).items()
        }
        where = [table.source.format, options.get("path") or sorted(options.items())]
    digest = hashlib.sha256(json.dumps([table.name.casefold(), where]).encode()).hexdigest()
    again = f"_{epoch}" if epoch and isinstance(table, RelationDef) else ""
    return f"table_{digest[:16]}{again}"


def _meaning(catalog: Catalog, query: QueryDef, compiled: QueryPlan) -> str:
    """Return a text that is the same for queries that mean the same: their operators, what they read, and may lose."""
    tables = sorted({each.table for each in compiled.sources})
    read = [source_name(catalog.table(name)) for name in tables]  # type: ignore[arg-type]
    level = service_level(query.options, query.settings)
    lost = [level.policy, level.max_gap, level.seed] if level.policy != "none" else []
    content = json.dumps([sorted(each.id for each in compiled.operators), read, *lost])
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def refused(folder: Path, before: NetworkRecord, change: NetworkChange) -> CqlError:
    """Return the error that a checkpoint belongs to other queries."""
    differences = [
        f"{words} {', '.join(names)}"
        for words, names in (
            ("it has no", change.added),
            ("it has another", change.changed),
            ("here there is no", change.dropped),
        )
        if names
    ]
    lost = change.given_up(before)
    kept = f"; the contents of {len(lost)} {_stores(lost)} would be given up" if lost else ""
    return fail(
        Code.OTHER_CHECKPOINT,
        f"the checkpoint '{folder}' belongs to other queries: {'; '.join(differences)}{kept}",
        hint="start from a new checkpoint, or adopt this one (cql run --adopt, Engine(adopt=True)): queries that are "
        "the same go on with their state, the others begin anew",
    )


def _stores(lost: Sequence[str]) -> str:
    return "store" if len(lost) == 1 else "stores"


def _unusable(folder: Path, why: str) -> CqlError:
    return fail(
        Code.OTHER_CHECKPOINT, f"the checkpoint '{folder}' cannot be used: {why}", hint="start from a new checkpoint"
    )


def feeds_of(record: NetworkRecord) -> dict[str, list[op.Source]]:
    """Return the sources of a network by what feeds them."""
    found: dict[str, list[op.Source]] = {}
    for each in record.plan.sources:
        found.setdefault(each.feed, []).append(each)
    return found


def delays_of(catalog: Catalog, sources: Iterable[op.Source]) -> dict[str, int]:
    """Return how late elements of each source may come."""
    tables = ((catalog.table(each.table), each) for each in sources)
    return {each.id: table.delay for table, each in tables if isinstance(table, StreamDef)}
