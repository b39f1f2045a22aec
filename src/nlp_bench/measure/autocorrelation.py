"""How much neighbouring intervals resemble each other, and what their mean is worth because of it.

Model: an autoregressive process of first order. The lag-1 autocorrelation r of n values around their own mean is too low by about
(1 + 4 r) / n (Marriott and Pope 1954, Biometrika 41), and is corrected for it; it is never taken below 0. The mean is then worth
n (1 - r) / (1 + r) independent values (Bayley and Hammersley 1946), and their sample variance is too low by the same token.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_VALUES = 8
"""Below this autocorrelation cannot be seen, and the values are taken for independent."""
LARGEST = 0.9
MAX_ORDER = 10
"""Of an autoregressive process."""
LARGEST_SUM = 0.95
"""Of its coefficients; above, a series has no mean that it stays near."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scatter:
    """What a stationary series says about its mean."""

    variance: float
    """Of one value, autocorrelation allowed for."""
    autocorrelation: float
    """At lag 1, corrected, from 0 to LARGEST."""
    num_effective: float
    """Independent values that the mean is worth."""

    @property
    def standard_error(self) -> float:
        """Of the mean."""
        return math.sqrt(self.variance / self.num_effective)


def scatter_of(values: NDArray[np.float64]) -> Scatter:
    """Return the scatter of `values`, at least two, around their mean."""
    centred = values - values.mean()
    return scatter_around(centred, 1)


def scatter_around(residuals: NDArray[np.float64], num_means: int) -> Scatter:
    """Return the scatter of residuals from which `num_means` means were taken."""
    number = len(residuals)
    total = float(residuals @ residuals)
    raw = float(residuals[1:] @ residuals[:-1]) / total if total > 0 else 0.0
    corrected = (raw + num_means / number) / (1 - 4 / number) if number >= MIN_VALUES else 0.0
    ratio = min(max(corrected, 0.0), LARGEST)
    effective = max(number * (1 - ratio) / (1 + ratio), 1.5)
    lost = min(num_means / effective, 0.75)
    return Scatter(variance=total / number / (1 - lost), autocorrelation=ratio, num_effective=effective)


def long_run_variance(values: NDArray[np.float64]) -> float:
    """Return the variance of the mean of `values` times their number, by an autoregressive process of the best order.

    Yule-Walker equations by Levinson's recursion, the order from 0 to MAX_ORDER by Akaike's criterion (Brockwell and Davis, Time
    Series: Theory and Methods, chapters 8 and 9): variance of the shocks / (1 - sum of the coefficients)^2, which is the
    spectral density at frequency 0.
    """
    number = len(values)
    centred = values - values.mean()
    lagged = np.array([centred[lag:] @ centred[: number - lag] for lag in range(MAX_ORDER + 1)]) / number
    if lagged[0] <= 0:
        return 0.0
    coefficients, shocks = np.zeros(0), float(lagged[0])
    best, best_criterion = (coefficients, shocks), number * math.log(shocks)
    for order in range(1, MAX_ORDER + 1):
        last = (float(lagged[order]) - float(coefficients @ lagged[order - 1 : 0 : -1])) / shocks
        coefficients = np.append(coefficients - last * coefficients[::-1], last)
        shocks *= 1 - last * last
        if shocks <= 0:
            break
        criterion = number * math.log(shocks) + 2 * order
        if criterion < best_criterion:
            best, best_criterion = (coefficients, shocks), criterion
    coefficients, shocks = best
    order = len(coefficients)
    # Each coefficient is too low by about 1/n, as the autocorrelation above.
    total = min(float(coefficients.sum()) + order / number, LARGEST_SUM)
    return shocks * number / (number - order - 1) / (1 - total) ** 2
