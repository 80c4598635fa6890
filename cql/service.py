"""Service levels: what a registered query may lose when there is more input than can be processed.

They are options of REGISTER QUERY .. WITH, and settings where these are left out. Nothing is shed for a query that did
not ask for it. What a policy means, and where it fits, is known to the package `shedding` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cql.intervals import parse_interval
from cql.settings import Settings
from cql.sizes import parse_size

EVICTING = ("rand", "prob", "life")
"""Policies by which joins give up rows when there is no memory for all of them."""

WORDS = {"accept": ("subset", "approximate"), "allocation": ("variable", "fixed")}
"""Options that take one of some words, and are no settings."""

OPTIONS = ("shedding", "max_gap", "weight", "max_latency", "accept", "memory", "allocation", "utility")
"""The options of REGISTER QUERY .. WITH that make up a service level."""


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """What a query accepts.

    `policy` is none, auto, window, random, selective or dual, or one of `EVICTING`: its join then holds no more than
    `memory` bytes of rows, half of it for each input if the `allocation` is fixed.
    `max_gap` is how many windows in a row may be missing; `weight` what an answer of this query is worth beside those
    of others; `max_latency` the delay of answers, in seconds, from which on something is to be shed; `seed` decides
    what is lost. With `accept_approximate`, answers may be wrong, not only missing.
    """

    policy: str = "none"
    max_gap: int = 10
    weight: float = 1.0
    max_latency: float | None = None
    seed: int = 0
    accept_approximate: bool = False
    memory: int | None = None
    allocation: str | None = None


def service_level(options: Mapping[str, str], settings: Settings) -> ServiceLevel:
    """Return the service level that options, which have been checked, and settings give."""
    given = {key.casefold(): value for key, value in options.items()}
    latency = given.get("max_latency", settings.max_latency).lower()
    return ServiceLevel(
        policy=given.get("shedding", settings.shedding).lower(),
        max_gap=int(given.get("max_gap", settings.max_gap)),
        weight=float(given.get("weight", settings.weight)),
        max_latency=None if latency == "off" else parse_interval(latency).microseconds() / 1e6,
        seed=settings.shedding_seed,
        memory=parse_size(given["memory"]) if "memory" in given else None,
        allocation=given["allocation"].lower() if "allocation" in given else None,
        accept_approximate=given.get("accept", "subset").lower() == "approximate",
    )
