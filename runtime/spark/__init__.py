"""The runtime on Spark Structured Streaming: sources, packing, stateful operators and results of one Spark query.

Stateless work that commutes is done by Spark SQL (`columns`), everything else by the engine inside Spark's tasks.
"""
