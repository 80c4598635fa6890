"""The grammar of CQL: the one file `cql.lark`, which documents itself rule by rule.

Read it with `importlib.resources.files("grammar")`; the parser in `cql` is what turns it into trees.
This package is data and imports nothing of the project.
"""
