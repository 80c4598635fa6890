"""Load shedding: the policies and controllers that decide what a plan may drop, and when.

May import `grammar`, `cql` and `planner`; must not know of `runtime`, `repl` or Spark.

| module | what it is about |
|---|---|
| `schedule` | which units of time are lost: coins, gaps, decisions |
| `demand` | which rows the kept units of a query need |
| `plans` | the pass that puts drop operators into plans, and what does not fit |
| `control` | the control loop: how much to lose of what, from what micro-batches cost |
| `selective` | joins that take too long: which ages of a window to look at, learned from full probes |
| `dual` | joins of the last rows that take too long: which probes to leave out, which rows to drop |
| `fitting` | what something costs, from how long it took |
| `analysis` | what a lost share saves, by formulas |
| `eviction` | which stored rows of a join stay when memory is short |
"""
