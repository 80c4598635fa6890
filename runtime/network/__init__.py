"""Networks: a plan cut into fragments that run in many places, once for each bucket of keys, and what owns it at work.

Rows travel between fragments as a few large pieces with the names of where they go (`worker`, `messages`, `layout`). A
`Network` owns what runs: its record in the checkpoint, its controllers, its counters, the delivery of its results. A
`Host` reads its sources, carries the pieces, keeps the state and calls the workers. Nothing here knows of any host.
Imports `controllers`, `delivery` and what is before them.
"""
