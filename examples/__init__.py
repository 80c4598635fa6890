"""Programs that show the project at work; each runs as `python -m examples.NAME`."""
