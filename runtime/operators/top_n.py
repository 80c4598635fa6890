"""The first rows of a relation, or of each of its partitions."""

from __future__ import annotations

from planner import operators as op
from runtime.columns.batch import ChangeBatch
from runtime.operators.base import Context, Operator
from runtime.operators.registry import implements
from runtime.operators.state_words import InputColumns, StatePiece, codes, words_of
from runtime.operators.top_n_state import Firsts
from runtime.state.chunks import ChunkSets, Delta


def _piece(node: op.TopN, inputs: InputColumns, piece: str) -> StatePiece:
    """Return what the rows are that are kept in the order of their codes."""
    firsts = Firsts(node.partition, node.keys, node.limit, node.numbered, inputs.types[0])
    return StatePiece(words_of(piece), tuple(inputs.names[0]), decode=lambda columns: firsts.columns(codes(columns)))


@implements(op.TopN, state=_piece)
class TopN(Operator):
    """Keeps the rows in order and says which are the first."""

    def __init__(self, node: op.TopN, context: Context) -> None:
        super().__init__(node, context)
        self._firsts = Firsts(node.partition, node.keys, node.limit, node.numbered, self.input_types[0])

    @property
    def nbytes(self) -> int:
        return self._firsts.nbytes

    def apply(self, port: int, batch: ChangeBatch) -> ChangeBatch:
        return self._firsts.apply(batch)

    def delta(self) -> dict[str, Delta]:
        return {"rows": self._firsts.delta()}

    def load(self, chunks: ChunkSets) -> None:
        self._firsts.load(chunks.get("rows", {}))
