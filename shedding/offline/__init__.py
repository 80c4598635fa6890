"""What can be known about a join's shedding afterwards, when all input is there: bounds, and what is still missing.

Follows sections 2.2 to 2.4 of the sheet `papers/join-shedding.md`. Nothing here decides anything while queries run.

| module | what it is about |
|---|---|
| `streams` | inputs with instants, and the pairs that an exact join makes of them |
| `optimum` | the most pairs that any policy could have found with a given memory |
| `static` | which rows of relations to keep so that most of their join is kept |
| `archive` | which rows were not fully joined, and the pairs that are missing |
"""
