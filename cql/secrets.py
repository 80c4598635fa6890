"""Secrets in options: what is one, and texts that do not show it.

Options of sources and sinks hold passwords, keys and tokens, some of them within a URL. They go to what opens the
source or sink and nowhere else: errors, representations, JSON and what checkpoints record have `***` in their place.
An option holds a secret if its connector says so, or if it is called as secrets are, whatever the format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from cql import formats

MASK = "***"

_SECRET = re.compile(
    r"""passw | passphrase | passcode | (^|[._-])pass$ | pwd | secret | token | credential | jaas | authorization
        | (access|api|private|account|shared|storage|signing|master|encryption)[._-]?key | keystore[._-]?key$ | sas$""",
    re.IGNORECASE | re.VERBOSE,
)
_QUOTED = r"""'[^']*(?:''[^']*)*'?|"[^"]*(?:""[^"]*)*"?"""
_KEY = r"""(?<![\w.$-])(?P<quote>['"]?)(?P<key>[\w.$-]+)(?P=quote)"""
_ASSIGNED = re.compile(rf"{_KEY}\s*=\s*(?P<value>{_QUOTED})")
_ATTACHED = re.compile(r"""(?<![\w.$-])(?P<key>[\w.$-]+)=(?P<value>[^\s&;,'")=]+)""")
_IN_URL = re.compile(r"""://(?P<value>[^/\s@:'"]{0,200}:(?!\d+(?:[/?,]|$))[^\s'"]{0,200})@""")

_OPTION = re.compile(rf"{_KEY}\s*(?:[=:]\s*)?(?P<value>{_QUOTED})")
_OPTIONS = re.compile(rf"\bOPTIONS\s*\((?:{_QUOTED}|[^;'\"])*", re.IGNORECASE)
_FORMAT = re.compile(r"""\b(?:FROM|INTO)\s+"?([\w.$-]+)"?\s+(?:SCHEMA\s+INFERRED\s+)?\Z""", re.IGNORECASE)
_LONGEST_BEFORE = 200
"""How far before its options the name of a format is looked for."""
_BARE = re.compile(rf"[(,]\s*{_KEY}(?:\s*[=:]\s*|\s+)(?P<value>[^\s,()'\"=:][^\s,()'\"]*)")


def is_secret(key: str, format_name: str | None = None) -> bool:
    """Tell whether an option of this name holds a secret; without a format, whether that of any does.

    >>> [key for key in ("path", "password", "kafka.sasl.jaas.config", "sasl.mechanism") if is_secret(key)]
    ['password', 'kafka.sasl.jaas.config']
    """
    return _SECRET.search(key) is not None or key.casefold() in formats.secret_options(format_name)


def shown_options(format_name: str, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a source or sink as they may be shown.

    >>> shown_options("jdbc", {"url": "postgresql://ann:hunter2@db/shop", "password": "hunter2"})
    {'url': 'postgresql://***@db/shop', 'password': '***'}
    """
    return {key: MASK if is_secret(key, format_name) else without_secrets(value) for key, value in options.items()}


def without_secrets(text: str) -> str:
    """Return a text with a mask in the place of each secret, as far as these can be told from other words.

    >>> print(without_secrets("jdbc:db://ann:hunter2@host/shop?user=ann&token=abc with password='hunter2'"))
    jdbc:db://***@host/shop?user=ann&token=*** with password='***'
    """
    parts, at = [], 0
    for start, end in _apart(_found(text)):
        parts += [text[at:start], MASK]
        at = end
    return "".join([*parts, text[at:]])


@lru_cache(maxsize=4)
def secret_places(script: str) -> list[tuple[int, int]]:
    """Return where secrets are in a script, in their order and apart from each other.

    >>> script = "FROM kafka OPTIONS (servers 'h:1', password 'hunter2', token abc)"
    >>> [script[start:end] for start, end in secret_places(script)]
    ['hunter2', 'abc']
    """
    return _apart((*_found(script), *_found_in_options(script)))


def _apart(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return places in their order, those that meet as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif start < end:
            merged.append((start, end))
    return merged


def _found(text: str) -> Iterator[tuple[int, int]]:
    for match in _IN_URL.finditer(text):
        yield match.span("value")
    yield from _values(_ATTACHED.finditer(text))
    yield from _values(_ASSIGNED.finditer(text))


def _found_in_options(script: str) -> Iterator[tuple[int, int]]:
    yield from _values(_OPTION.finditer(script))
    for clause in _OPTIONS.finditer(script):
        format_name = _format_before(script, clause.start())
        yield from _values(_OPTION.finditer(script, *clause.span()), format_name)
        yield from _values(_BARE.finditer(script, *clause.span()), format_name)


def _format_before(script: str, end: int) -> str:
    """Return the format whose options begin at a place; empty if none is named."""
    found = _FORMAT.search(script, max(end - _LONGEST_BEFORE, 0), end)
    return formats.canonical(found[1]) if found else ""


def _values(matches: Iterable[re.Match[str]], format_name: str = "") -> Iterator[tuple[int, int]]:
    """Yield the places of values that belong to secret keys, without their quotes."""
    for match in matches:
        if is_secret(match["key"], format_name):
            (start, end), value = match.span("value"), match["value"]
            is_quoted = value[0] in "'\""
            is_closed = len(value) > 1 and value[-1] == value[0]
            yield start + is_quoted, end - (is_quoted and is_closed)
