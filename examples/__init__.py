"""Examples that run as they are, one folder each (see README.md), and the demonstration that `make demo` runs."""
