"""Load shedding: the policies and controllers that decide what a plan may drop, and when.

May import `grammar`, `cql` and `planner`; must not know of `runtime`, `repl` or Spark.
This part is not there yet.
"""
