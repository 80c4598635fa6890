"""The Python processes that Spark starts for tasks: which Python they run, and what they import.

They import nothing from where they are started: data lie there, and a file named as a module would be run. They run a
Python of this version that has what tasks need. Spark learns of both when a frame is made, so a session of the user is
left as it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock

from pyspark import SparkContext

from cql.errors import Code, fail, one_of
from runtime.spark.broadcast import SAFE_PATH

NEEDED = ("numpy", "pandas", "pyarrow", "runtime")
"""The modules that tasks import, beside those of Spark."""

_LOOK = (
    "import sys; from importlib.util import find_spec; "
    "print('%d.%d' % sys.version_info[:2], *(name for name in sys.argv[1:] if find_spec(name) is None))"
)
_ONE_PROCESS = re.compile(r"local(\[.*\])?")
_making = RLock()


@contextmanager
def own_workers(context: SparkContext) -> Iterator[None]:
    """Let the frames that are made here be computed by a Python that imports nothing from where it is started."""
    with _making:
        environment = context.environment
        before = environment.get(SAFE_PATH), context.pythonExec
        environment[SAFE_PATH], context.pythonExec = "1", python_of(context)
        try:
            yield
        finally:
            context.pythonExec = before[1]
            if before[0] is None:
                del environment[SAFE_PATH]
            else:
                environment[SAFE_PATH] = before[0]


def python_of(context: SparkContext) -> str:
    """Return the Python for tasks: that of the session, or this one where nobody has chosen and that is of no use."""
    python = context.pythonExec
    if _is_this(python) or not is_one_process(context):
        return python
    paths = (context.environment.get("PYTHONPATH", ""), os.environ.get("PYTHONPATH", ""))
    found = _problem(python, os.pathsep.join(filter(None, paths)))
    if found is None:
        return python
    if sys.executable and "PYSPARK_PYTHON" not in os.environ:
        return sys.executable
    code, problem = found
    message = f"Spark starts '{python}' for its Python processes, and {problem}"
    raise fail(code, message, hint=f"set PYSPARK_PYTHON to '{sys.executable}' before the session is made")


def _is_this(python: str) -> bool:
    """Tell whether a Python is this one; those of virtual environments may all be links to one program."""
    found = shutil.which(python)
    ours = sys.executable
    return found is not None and os.path.dirname(found) == os.path.dirname(ours) and os.path.samefile(found, ours)


def is_one_process(context: SparkContext) -> bool:
    """Tell whether the driver itself runs the tasks."""
    return _ONE_PROCESS.fullmatch(str(context.master)) is not None


@cache
def _problem(python: str, paths: str) -> tuple[Code, str] | None:
    """Return what keeps a Python from running tasks; None if nothing does."""
    given = {**os.environ, SAFE_PATH: "1", "PYTHONPATH": paths}
    try:
        asked = subprocess.run([python, "-c", _LOOK, *NEEDED], capture_output=True, text=True, env=given, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return Code.MISSING, f"that cannot be started: {error}"
    if asked.returncode:
        return Code.MISSING, f"that is no Python which works: {(asked.stderr.splitlines() or ['it says nothing'])[-1]}"
    version, *missing = asked.stdout.split()
    own = ".".join(map(str, sys.version_info[:2]))
    if version != own:
        return Code.VERSIONS, f"that is Python {version}, where this is Python {own}"
    return (Code.MISSING, f"that has no module {one_of(missing)}") if missing else None
