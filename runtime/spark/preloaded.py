"""Everything that tasks import, in one place: importing this module loads it."""
