"""Files: how sources are read and results are written by the local engine.

`open_source` gives the rows of a table, `open_sink` takes the changes of a query. Both speak columns; neither knows
of operators, plans or Spark.
"""

from runtime.formats.rows import Rows
from runtime.formats.sinks import Writer, open_sink
from runtime.formats.sources import FileSource, SourceReader, open_source

__all__ = ["FileSource", "Rows", "SourceReader", "Writer", "open_sink", "open_source"]
