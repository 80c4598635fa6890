"""All connectors, by the names that users write after FROM and INTO.

Who has to know something of a format asks here: the binder, completion, both hosts, and the test that compares the
tables in documents. A name that no connector has is one of Spark's.
"""

from __future__ import annotations

from functools import lru_cache

from runtime.connectors.connector import Connector
from runtime.connectors.console import ConsoleConnector
from runtime.connectors.csv import CsvConnector
from runtime.connectors.json import JsonConnector
from runtime.connectors.memory import MemoryConnector
from runtime.connectors.parquet import ParquetConnector
from runtime.connectors.rate import RateConnector
from runtime.connectors.socket import SocketConnector
from runtime.connectors.spark import KNOWN, SparkConnector
from runtime.connectors.stream import StreamConnector

CONNECTORS: tuple[Connector, ...] = (
    CsvConnector(),
    JsonConnector(),
    ParquetConnector(),
    StreamConnector(),
    RateConnector(),
    SocketConnector(),
    MemoryConnector(),
    ConsoleConnector(),
)
"""Those that are known here, in the order in which documents list them."""


def connector(format_name: str) -> Connector:
    """Return the connector of a format.

    >>> connector("csv").is_bounded, connector("kafka").is_only_on_spark
    (True, True)
    """
    return next((each for each in CONNECTORS if each.name == format_name), None) or SparkConnector(format_name)


def canonical(word: str) -> str:
    """Return the name of a format as a user has written it; names that are known are so in any case.

    >>> canonical("CSV"), canonical("Kafka"), canonical("com.example.Source")
    ('csv', 'kafka', 'com.example.Source')
    """
    known = word.casefold()
    return known if known in KNOWN or any(each.name == known for each in CONNECTORS) else word


def sources() -> list[Connector]:
    """Return the connectors that have sources."""
    return [each for each in CONNECTORS if each.reads]


def sinks() -> list[Connector]:
    """Return the connectors that have sinks."""
    return [each for each in CONNECTORS if each.writes]


def read_by_engine() -> list[str]:
    """Return the names of the formats whose sources the engine reads to their ends."""
    return [each.name for each in sources() if each.is_bounded]


@lru_cache(maxsize=64)
def secret_options(format_name: str | None) -> frozenset[str]:
    """Return the options of a format, or of any, that hold secrets, in lower case."""
    known = CONNECTORS if format_name is None else [connector(format_name)]
    return frozenset().union(*(each.secret_options() for each in known))
