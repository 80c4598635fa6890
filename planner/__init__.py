"""The planner: from a bound query to a shared physical plan, by rules from plan to plan.

May import `grammar` and `cql`; must not know of `shedding`, `runtime`, `repl` or Spark.
"""
