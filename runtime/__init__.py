"""The runtime: executes plans, on Spark Structured Streaming or in this process.

May import `grammar`, `cql`, `planner` and `shedding`; must not know of `repl`.
Its rooms, each of which imports only those before it (`tests/test_layering.py`):

| room | what is in it |
|---|---|
| `user_errors` | what can go wrong while a query runs and is not the engine's fault |
| `columns` | change batches, and what is done with whole columns |
| `time` | the clock of sources, lifetimes that windows give |
| `exact_sums` | sums that do not depend on the order of their terms |
| `state` | what operators keep, in chunks that are written as they change |
| `expressions` | expressions over columns |
| `aggregates` | what an aggregate keeps of a group |
| `joins` | which rows a probe may match, and which of them it does |
| `operators` | the operators of a plan at work |
| `engine` | runs the operators of a plan, saves and restores them |
| `connectors` | where rows come from and results go to |
| `delivery` | results of micro-batches go to the sinks of their queries, once |
| `reports` | what a run says of itself |
| `controllers` | what is decided about a network while it runs |
| `network` | a plan over several places: fragments, buckets, workers, messages; and what owns it while it runs |
| `state_inspection` | what kept state means, for those who look at it |
| `local`, `spark` | the hosts |
"""
