"""A network that loses half of its windows: reads the files that are there, and prints how far it is and what it lost.

Run as `python -m tests.shedding_program DATA CHECKPOINT OUT`, again and again from one checkpoint.
"""

from __future__ import annotations

import json
import sys

import cql

STREAM = (
    "CREATE STREAM bid (auction INT, price INT, at INT) TIMESTAMP BY at"
    " FROM parquet OPTIONS (path '{data}', maxFilesPerTrigger '1')"
)
SUMS = (
    "REGISTER QUERY sums AS SELECT Rstream(auction, COUNT(*) AS n, SUM(price) AS total)"
    " FROM bid [Range 2 Seconds Slide 2 Seconds] GROUP BY auction"
    " WITH (shedding = 'window', max_gap = 3) INTO parquet OPTIONS (path '{out}')"
)


def main(data: str, checkpoint: str, out: str) -> None:
    engine = cql.Engine(checkpoint=checkpoint)
    engine.execute("SET files = follow")
    engine.execute(STREAM.format(data=data))
    engine.execute(SUMS.format(out=out))
    engine.start()
    engine.shed("sums", 0.5)
    engine.process_available()
    loss = engine.query("sums").shedding()
    assert loss is not None
    (progress,) = engine.progress().values()
    lost = [[stretch.first, stretch.last] for stretch in loss.stretches if not stretch.is_kept]
    engine.stop()
    print(json.dumps({"until": progress.instants["sums"], "lost": lost}))


if __name__ == "__main__":
    main(*sys.argv[1:])
