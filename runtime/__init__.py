"""The runtime: executes plans, on Spark Structured Streaming or in this process.

May import `grammar`, `cql`, `planner` and `shedding`; must not know of `repl`.
The columnar engine is here, fragments of plans in `fragments`, and what runs them on Spark in `spark`.
"""
