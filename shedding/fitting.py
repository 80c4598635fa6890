"""What something costs, learned from how long it took: least squares with a guess, and without negative costs.

Times are sums of costs times counts. Newer observations count more than older ones, and a guess counts like one more
of them, so that there is an answer however few there are and however much they are alike. Observations that are far off
what the others say count less (Huber's weights): machines have other things to do, too. The newest ones count if they
are not beyond belief, because costs may have changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

AGEING = 0.9
"""How much less an observation counts than the one after it."""


USUALLY_OFF = 0.1
"""By which share of what they usually take observations may be off without counting less."""

NEWEST = 3
"""How many of the newest observations count however far off they are, up to so many times what was expected:"""
FARTHEST = 3.0

ROUNDS = 10
"""How many times it is found out which observations are off."""


def fitted(counts: Sequence[Sequence[float]], seconds: Sequence[float], guess: Sequence[float]) -> Floats:
    """Return the cost of each thing that was counted, the first of which is always counted once.

    >>> batches = [[1, 1e6], [1, 2e6], [1, 4e6]] * 5
    >>> fixed, each = fitted(batches, [0.5 + 1e-6 * n for _, n in batches], guess=[0.4, 1.1e-6])
    >>> round(float(fixed), 1), round(float(each) * 1e6, 1)
    (0.5, 1.0)
    >>> fixed, each = fitted([[1, 3e6], *batches], [40.0, *(0.5 + 1e-6 * n for _, n in batches)], guess=[0.4, 1.1e-6])
    >>> round(float(fixed), 1), round(float(each) * 1e6, 1)
    (0.5, 1.0)
    """
    rows, wanted = np.array(counts, float), np.array(seconds, float)
    ageing = AGEING ** np.arange(len(rows))[::-1]
    near = max(USUALLY_OFF * float(np.median(wanted)), 1e-9)
    weights = np.ones(len(rows))
    for _ in range(ROUNDS):
        costs = _least_squares(rows, wanted, np.sqrt(weights * ageing), guess)
        expected = rows @ costs
        weights = near / np.maximum(np.abs(expected - wanted), near)
        weights[-NEWEST:][wanted[-NEWEST:] <= FARTHEST * expected[-NEWEST:]] = 1.0
    return costs


def _least_squares(rows: Floats, wanted: Floats, weights: Floats, guess: Sequence[float]) -> Floats:
    scale = np.maximum(rows.max(axis=0), 1.0)
    trust = np.array([0.1] + [0.3] * (len(guess) - 1))
    system = np.vstack([rows / scale * weights[:, None], np.diag(trust)])
    target = np.concatenate([wanted * weights, trust * np.array(guess) * scale])
    free = np.ones(len(guess), bool)
    found = np.zeros(len(guess))
    for _ in guess:
        found[:] = 0.0
        found[free] = np.linalg.lstsq(system[:, free], target, rcond=None)[0]
        if (found >= 0).all():
            break
        free &= found > 0
    costs: Floats = np.maximum(found, 0.0) / scale
    return costs
