"""The state of a local host in files: chunks in segments, and a manifest that is replaced as a whole.

| file | what is in it |
|---|---|
| `manifest.json` | the last micro-batch, how far sources are, the position of each worker, and where its chunks are |
| `segments/<number>` | chunks, one after the other; a segment never changes |

A commit writes the chunks that are new into a segment of its own, and then the manifest. Until that is replaced, the
state is the one before. Segments of which little is needed any more are written again with the next commit.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from cql.errors import Code, CqlError, fail
from runtime.connectors.result_files import sync, write_atomically, writing
from runtime.engine.checkpoint import CheckpointDelta
from runtime.network.messages import batch_bytes, bytes_batch

FORMAT = 1
HOST = "local"

_MANIFEST, _SEGMENTS = "manifest.json", "segments"

_MOST_UNUSED = 4 << 20
"""How many bytes of segments may be of no use, beside as many as are of use."""


class Location(NamedTuple):
    """Where a chunk is."""

    segment: int
    at: int
    length: int


@dataclass
class Manifest:
    """What a commit says."""

    batch: int = -1
    """The last micro-batch."""
    segment: int = 0
    """The number of the next segment."""
    sources: dict[str, Any] = field(default_factory=dict)
    """The position of each source that was read."""
    newest: dict[str, int] = field(default_factory=dict)
    """The latest instant of each feed."""
    messages: int = 0
    """How many control messages were given."""
    last_message: dict[str, Any] = field(default_factory=dict)
    positions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The position of each worker."""
    chunks: dict[str, dict[str, Location]] = field(default_factory=dict)
    """Where the chunks of each worker are, by name."""


class StateFiles:
    """The files of one network in the folder of its checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.manifest = self._loaded() or Manifest()
        self._sizes = self._found_segments()

    def chunks(self, place: str) -> dict[str, pa.RecordBatch]:
        """Return the chunks of a worker."""
        return {name: bytes_batch(self._read(where)) for name, where in self.manifest.chunks.get(place, {}).items()}

    def forget(self, place: str, names: list[str]) -> None:
        """Let go of chunks that a worker has no use for; they are gone with the next commit."""
        for name in names:
            del self.manifest.chunks[place][name]

    def commit(self, deltas: Mapping[str, CheckpointDelta]) -> None:
        """Write what has changed, and then the manifest."""
        manifest = self.manifest
        for place, delta in deltas.items():
            known = manifest.chunks.setdefault(place, {})
            for name in delta.drop:
                known.pop(name, None)
            manifest.positions[place] = delta.meta
        blobs = self._still_used()
        for place, delta in deltas.items():
            blobs |= {(place, name): batch_bytes(chunk) for name, chunk in delta.put.items()}
        self._write_segment(blobs)
        content = {"format": FORMAT, "host": HOST, **vars(manifest)}
        write_atomically(self._folder / _MANIFEST, json.dumps(content).encode())
        self._remove_unused()

    # Segments

    def _write_segment(self, blobs: Mapping[tuple[str, str], bytes]) -> None:
        if not blobs:
            return
        manifest, at = self.manifest, 0
        number = manifest.segment
        path = self._segment(number)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                for (place, name), blob in blobs.items():
                    file.write(blob)
                    manifest.chunks[place][name] = Location(number, at, len(blob))
                    at += len(blob)
            sync(path)
            sync(path.parent)
        self._sizes[number] = at
        manifest.segment = number + 1

    def _still_used(self) -> dict[tuple[str, str], bytes]:
        """The chunks of segments that are to go because most of what is in them is of no use."""
        used = self._used()
        total = sum(used.values())
        unused = sum(self._sizes.values()) - total
        found: dict[tuple[str, str], bytes] = {}
        for number in sorted(self._sizes, key=lambda number: used[number] / max(self._sizes[number], 1)):
            if unused <= total + _MOST_UNUSED:
                break
            unused -= self._sizes[number] - used[number]
            for place, chunks in self.manifest.chunks.items():
                found |= {(place, name): self._read(at) for name, at in chunks.items() if at.segment == number}
        return found

    def _used(self) -> Counter[int]:
        """How many bytes of each segment are of use."""
        used: Counter[int] = Counter()
        for chunks in self.manifest.chunks.values():
            for where in chunks.values():
                used[where.segment] += where.length
        return used

    def _remove_unused(self) -> None:
        used = self._used()
        for number in [number for number in self._sizes if not used[number]]:
            self._segment(number).unlink(missing_ok=True)
            del self._sizes[number]

    def _found_segments(self) -> dict[int, int]:
        """Return the sizes of the segments that are there, without those that a crash has left."""
        folder, sizes = self._folder / _SEGMENTS, {}
        for path in folder.iterdir() if folder.is_dir() else ():
            if int(path.name) < self.manifest.segment:
                sizes[int(path.name)] = path.stat().st_size
            else:
                path.unlink()
        return sizes

    def _segment(self, number: int) -> Path:
        return self._folder / _SEGMENTS / f"{number:08}"

    def _read(self, where: Location) -> bytes:
        path = self._segment(where.segment)
        try:
            with path.open("rb") as file:
                file.seek(where.at)
                blob = file.read(where.length)
        except OSError as error:
            raise unusable(self._folder, f"'{path.name}' of its state cannot be read: {error.strerror}") from None
        if len(blob) < where.length:
            raise unusable(self._folder, f"'{path.name}' of its state is cut off")
        return blob

    # The manifest

    def _loaded(self) -> Manifest | None:
        path = self._folder / _MANIFEST
        try:
            content = json.loads(path.read_bytes())
            if content.pop("host") != HOST or content.pop("format") != FORMAT:
                raise unusable(self._folder, "it was made by another version of this program")
            manifest = Manifest(**content)
            manifest.chunks = {
                place: {name: Location(*where) for name, where in chunks.items()}
                for place, chunks in manifest.chunks.items()
            }
            return manifest
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unusable(self._folder, str(error.strerror)) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise unusable(self._folder, f"its file {_MANIFEST} is damaged") from None


def unusable(folder: Path, why: str) -> CqlError:
    """Return the error that a checkpoint cannot be gone on from."""
    return fail(
        Code.OTHER_CHECKPOINT, f"the checkpoint '{folder}' cannot be used: {why}", hint="start from a new checkpoint"
    )
