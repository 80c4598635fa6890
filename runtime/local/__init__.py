"""The local host: runs queries in this process.

Imports all other rooms but `spark`.
"""
