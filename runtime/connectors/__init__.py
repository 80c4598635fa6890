"""Where rows come from and where results go: files, data in Python, the screen.

`open_source` gives the rows of a table, `open_sink` takes the changes of a query. Both speak columns; neither knows
of operators, plans or hosts. Imports `columns` and `state`.
"""

from runtime.connectors.intake import SourceRows
from runtime.connectors.sinks import Writer, open_sink
from runtime.connectors.sources import FileSource, SourceReader, open_source

__all__ = ["FileSource", "SourceReader", "SourceRows", "Writer", "open_sink", "open_source"]
