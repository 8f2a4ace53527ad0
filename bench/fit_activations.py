#!/usr/bin/env python3
"""Fits the polynomials of src/core/activations.inc.h, and prints their coefficients. Needs numpy, scipy and mpmath.

    fit_activations.py

Each polynomial has the least greatest error over its interval, in the measure that its function is used in.
Coefficients are rounded to f32 one after another, the lowest power first; those after each are fitted anew. They are
printed as Horner's rule takes them, the highest power first. The error that is printed is that of the rounded
coefficients, in units of 2^-24.
"""

import mpmath
import numpy as np
import scipy.optimize

POINTS = 600  # per interval, at Chebyshev's places
CENTRE = 1.5  # of ERFCX: y from 0 to infinity becomes 1 to -1
mpmath.mp.dps = 40


def exp_rest(r):
    """exp(r) = 1 + r + r^2 * this."""
    return (mpmath.expm1(r) - r) / r**2 if abs(r) > 1e-6 else mpmath.mpf(1) / 2 + r / 6


def log_rest(v):
    """log((1 + u) / (1 - u)) = 2 * u + u^3 * this, where v = u^2."""
    u = mpmath.sqrt(v)
    return (2 * mpmath.atanh(u) - 2 * u) / u**3 if v > 1e-6 else mpmath.mpf(2) / 3 + 2 * v / 5


def sine_square(v):
    """sin(x)^2 = x^2 * this, where v = x^2."""
    return (mpmath.sin(mpmath.sqrt(v)) / mpmath.sqrt(v)) ** 2 if v > 0 else mpmath.mpf(1)


def tail_of(x):
    """Returns y of which x is (CENTRE - y) / (CENTRE + y)."""
    return CENTRE * (1 - x) / (1 + x)


def erfcx(x):
    """exp(y^2 / 2) * (1 + erf(-y / sqrt(2))) / 2 = this / (CENTRE + y), x being (CENTRE - y) / (CENTRE + y)."""
    y = tail_of(x)
    return (CENTRE + y) * mpmath.exp(y**2 / 2) * mpmath.erfc(y / mpmath.sqrt(2)) / 2


# name: function, its interval, coefficients, those given, what an error of the polynomial is multiplied with
LARGEST_TAIL = 13.27  # beyond it GELU is below 2^-126
LARGEST_REST = 0.3485  # half of log(2), and what the rounding of its multiple leaves
FITS = {
    "EXP": (exp_rest, (-LARGEST_REST, LARGEST_REST), 5, [], lambda r: r**2 / abs(mpmath.expm1(r)) if r else 0),
    "LOG": (log_rest, (0, mpmath.mpf(1) / 9), 4, [], lambda v: v / 2),
    "SINE_SQUARE": (sine_square, (0, 2.4682), 6, [1], lambda v: v),
    "ERFCX": (
        erfcx,
        ((CENTRE - LARGEST_TAIL) / (CENTRE + LARGEST_TAIL), 1),
        12,
        [],
        lambda x: 1 / erfcx(x),
    ),
}


def fit(values, weights, powers):
    """Returns the coefficients whose greatest weighted error is the least."""
    scaled = powers * weights[:, None]
    near = np.linalg.lstsq(scaled, values * weights, rcond=None)[0]
    rest = (values * weights - scaled @ near) * 1e9  # so that the solver's tolerances are small beside it
    ones = np.ones((len(rest), 1))
    least = scipy.optimize.linprog(
        np.append(np.zeros(len(near)), 1),
        A_ub=np.block([[scaled, -ones], [-scaled, -ones]]),
        b_ub=np.append(rest, -rest),
        bounds=[(None, None)] * (len(near) + 1),
    )
    return near + least.x[:-1] / 1e9


def fit_rounded(function, interval, count, given, weight):
    """Returns coefficients that are f32, and their greatest error."""
    places = np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS)
    low, high = float(interval[0]), float(interval[1])
    x = (low + high) / 2 + (high - low) / 2 * places
    values = np.array([float(function(mpmath.mpf(at))) for at in x])
    weights = np.array([float(weight(mpmath.mpf(at))) for at in x])
    powers = x[:, None] ** np.arange(count)
    coefficients = np.array(given, dtype=float)
    while len(coefficients) < count:
        done = len(coefficients)
        left = values - powers[:, :done] @ coefficients
        coefficients = np.append(coefficients, float(np.float32(fit(left, weights, powers[:, done:])[0])))
    return coefficients, np.max(np.abs(values - powers @ coefficients) * weights)


def main():
    for name, arguments in FITS.items():
        coefficients, error = fit_rounded(*arguments)
        print(f"{name}: error {error * 2**24:.3f}")
        for coefficient in coefficients[::-1]:
            print(f"    {coefficient:.9g}f" if coefficient != 1 else "    1.0f")


if __name__ == "__main__":
    main()
