"""The rewrite rules: one rule, one file, one function; and the order in which they run."""
