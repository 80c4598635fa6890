"""Delivery: the results of a micro-batch go to the sinks of their queries, once.

Knows neither networks nor hosts: who delivers says which batch it is. Imports `connectors` and what is before it.
"""
