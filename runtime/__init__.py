"""The runtime: executes plans, on Spark Structured Streaming or in this process.

May import `grammar`, `cql`, `planner` and `shedding`; must not know of `repl`.
This part is not there yet.
"""
