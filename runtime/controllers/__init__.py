"""Controllers: what is decided about a network while it runs, from figures of what it has done.

They know no engine and no host: they are told what micro-batches did, and say what the next one is to do.
Imports `reports` and what is before it.
"""
