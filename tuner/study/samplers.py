"""Samplers by name.

Owns their construction; a new one is one entry of ``SAMPLERS``. How a crash is told depends on
the sampler: TPE reads the constraints of pruned trials, GP reads complete trials only.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import optuna
from optuna.samplers import BaseSampler

# Optuna's TPE draws at random until it has seen this many trials; more than a quarter of a small
# budget spent so would leave it nothing to search with.
MAX_STARTUP_TRIALS = 10


@dataclass(frozen=True, kw_only=True)
class SamplerOptions:
    """What a sampler is made with.

    Attributes:
        seed: The study's seed.
        n_seen: Trials that the study holds already: a resumed study must not draw its first
            random numbers again.
        n_startup_trials: Trials drawn at random before a model is fitted.
    """

    seed: int
    n_seen: int
    n_startup_trials: int


def _tpe(options: SamplerOptions) -> BaseSampler:
    return optuna.samplers.TPESampler(
        seed=options.seed + options.n_seen, n_startup_trials=options.n_startup_trials
    )


def _gp(options: SamplerOptions) -> BaseSampler:
    return optuna.samplers.GPSampler(
        seed=options.seed + options.n_seen, n_startup_trials=options.n_startup_trials
    )


def _qmc(options: SamplerOptions) -> BaseSampler:
    # The study remembers the place in the sequence, which needs the same seed to go on.
    return optuna.samplers.QMCSampler(
        seed=options.seed, scramble=True, warn_independent_sampling=False
    )


def _random(options: SamplerOptions) -> BaseSampler:
    return optuna.samplers.RandomSampler(seed=options.seed + options.n_seen)


SAMPLERS: dict[str, Callable[[SamplerOptions], BaseSampler]] = {
    "tpe": _tpe,
    "gp": _gp,
    "qmc": _qmc,
    "random": _random,
}


def make_sampler(name: str, *, seed: int, n_launches: int, n_seen: int) -> BaseSampler:
    """The sampler of a study.

    Args:
        name: A key of ``SAMPLERS``.
        seed: The study's seed.
        n_launches: The study's budget, which bounds the random start.
        n_seen: Trials that the study holds already.

    Returns:
        A seeded sampler.

    Raises:
        KeyError: No sampler of this name.
    """
    n_startup_trials = max(3, min(MAX_STARTUP_TRIALS, n_launches // 4))
    options = SamplerOptions(seed=seed, n_seen=n_seen, n_startup_trials=n_startup_trials)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return SAMPLERS[name](options)
