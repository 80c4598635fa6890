"""What the papers' formulas and policies predict: models that experiments and tests compare the product with.

The product does not need them, and they need no engine: they stand on the arithmetic of `shedding`.

| module | what it is about |
|---|---|
| `window_loads` | the load of a plan that drops windows |
| `eviction_limits` | up to which age a join holds the rows of each key, and the recall that follows |
| `archive` | the pairs that are missing, given until when rows were held |
| `static` | the static join where the rows of each relation are counted, or of more than two relations |
| `selective` | the fraction, directions and cells of selective processing, and its recall |
| `dual` | the shares that dual windows shed, by how many results probes have |
"""
