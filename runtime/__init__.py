"""The runtime: executes plans, on Spark Structured Streaming or in this process.

May import `grammar`, `cql`, `planner` and `shedding`; must not know of `repl`.
The columnar engine is here; lowering to Spark is not there yet.
"""
