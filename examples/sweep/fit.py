#!/usr/bin/env python3
"""Fit a logistic regression with the settings that belong to HERD_ARRAY_INDEX; needs nothing but Python.

Points on a plane belong to one of two classes, divided by the line x + 2y = 0 with some noise. The last line is
`task I: rate R, decay D, loss L`, the loss being that of points the fit has not seen.
"""

import math
import os
import random

RATES = (0.01, 0.1, 1.0, 10.0)
DECAYS = (0.0, 0.01)


def points(count, rng):
    """Pairs ((x, y), class)."""
    for _ in range(count):
        x, y = rng.uniform(-1, 1), rng.uniform(-1, 1)
        yield (x, y), int(x + 2 * y + rng.uniform(-0.3, 0.3) > 0)


def probability(weights, point):
    score = weights[0] * point[0] + weights[1] * point[1] + weights[2]
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))


def main():
    index = int(os.environ["HERD_ARRAY_INDEX"])
    decay, rate = DECAYS[index // len(RATES)], RATES[index % len(RATES)]
    rng = random.Random(5)
    seen, unseen = list(points(500, rng)), list(points(500, rng))

    weights = [0.0, 0.0, 0.0]
    for _ in range(20):
        for (x, y), label in seen:
            error = probability(weights, (x, y)) - label
            weights = [w - rate * (error * v + decay * w) for w, v in zip(weights, (x, y, 1.0))]

    loss = -sum(math.log(max(1e-12, p if label else 1 - p)) for point, label in unseen for p in [probability(weights, point)])
    print(f"task {index}: rate {rate}, decay {decay}, loss {loss / len(unseen):.4f}", flush=True)


if __name__ == "__main__":
    main()
