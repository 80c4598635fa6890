"""Labels: integers that Spark groups the pieces of a bucket by, chosen so that buckets spread over its partitions.

Spark sends a group to the partition that the hash of its key says. With arbitrary keys, two buckets often meet in
one of two partitions and half of the cores idle. A label depends on the name of its bucket and on the number of
partitions, which a checkpoint fixes, and on nothing else, because state is kept under it.
"""

from __future__ import annotations

import zlib

_MASK = 0xFFFFFFFF


def label(fragment: str, bucket: int, partitions: int) -> int:
    """Return the label of a bucket: the first from a number of its own on that goes to the partition wanted."""
    wanted = (bucket + zlib.crc32(fragment.encode())) % partitions
    found = zlib.crc32(f"{fragment}/{bucket}".encode()) & 0x3FFFFFFF
    while spark_hash(found) % partitions != wanted:
        found += 1
    return found


def spark_hash(value: int) -> int:
    """Return what Spark's `hash` makes of an INT: Murmur3 with the seed 42.

    >>> [spark_hash(0), spark_hash(1), spark_hash(-1)]
    [933211791, -559580957, -1604776387]
    """
    mixed = _rotated((value * 0xCC9E2D51) & _MASK, 15) * 0x1B873593 & _MASK
    hashed = (_rotated(42 ^ mixed, 13) * 5 + 0xE6546B64) & _MASK
    hashed ^= 4
    hashed = (hashed ^ (hashed >> 16)) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ (hashed >> 13)) * 0xC2B2AE35 & _MASK
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _MASK
