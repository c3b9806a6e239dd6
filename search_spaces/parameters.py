"""The kinds of parameter that a search space is made of.

Owns which values each kind holds; knows nothing of samplers, files or vLLM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from search_spaces.configuration import ParameterValue


def is_same_kind(a: ParameterValue, b: ParameterValue) -> bool:
    """Whether two values are equal and of one type: ``True`` is not ``1``, nor is ``1.0``."""
    return type(a) is type(b) and a == b


def as_number(value: ParameterValue | None) -> float | None:
    """The value as a number; ``None`` for text, truth values and nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


@dataclass(frozen=True)
class Choices:
    """Unordered alternatives, at least one, all different."""

    values: tuple[ParameterValue, ...]

    def __post_init__(self) -> None:
        """Refuse an empty or ambiguous set.

        Raises:
            ValueError: No value, one value twice, or an endless one.
        """
        if not self.values:
            raise ValueError("choices are empty: give at least one value")
        if any(isinstance(value, float) and not math.isfinite(value) for value in self.values):
            raise ValueError("a choice must be a finite number")
        for index, value in enumerate(self.values):
            if any(is_same_kind(value, earlier) for earlier in self.values[:index]):
                raise ValueError(f"choice {value!r} stands there twice")

    def contains(self, value: ParameterValue) -> bool:
        """Whether the value is one of the choices."""
        return any(is_same_kind(value, own) for own in self.values)

    def nearest(self, wanted: ParameterValue | None) -> ParameterValue:
        """The wanted choice, else the nearest number, else the first."""
        if wanted is not None and self.contains(wanted):
            return wanted
        number = as_number(wanted)
        numbers = [as_number(value) for value in self.values]
        if number is None or None in numbers:
            return self.values[0]
        distances = [abs(own - number) for own in numbers if own is not None]
        return self.values[distances.index(min(distances))]

    def size(self) -> int | None:
        """Number of values; ``None`` for a continuum."""
        return len(self.values)


@dataclass(frozen=True)
class IntRange:
    """Whole numbers from ``low`` to ``high``, both included, ``step`` apart."""

    low: int
    high: int
    step: int = 1

    def __post_init__(self) -> None:
        """Refuse an empty range.

        Raises:
            ValueError: ``low`` above ``high``, or a step that does not lead from one to the other.
        """
        if self.low > self.high:
            raise ValueError(f"range [{self.low}, {self.high}] is empty: low is above high")
        if self.step < 1 or (self.high - self.low) % self.step:
            raise ValueError(f"step {self.step} does not lead from {self.low} to {self.high}")

    def contains(self, value: ParameterValue) -> bool:
        """Whether the value is a whole number of the range."""
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        return self.low <= value <= self.high and (value - self.low) % self.step == 0

    def nearest(self, wanted: ParameterValue | None) -> ParameterValue:
        """The nearest whole number; the lowest if nothing is wanted."""
        number = as_number(wanted)
        if number is None:
            return self.low
        inside = min(max(number, self.low), self.high)
        return self.low + self.step * round((inside - self.low) / self.step)

    def size(self) -> int | None:
        """Number of values; ``None`` for a continuum."""
        return (self.high - self.low) // self.step + 1


@dataclass(frozen=True)
class Log2Range:
    """Powers of two from ``low`` to ``high``, both included."""

    low: int
    high: int

    def __post_init__(self) -> None:
        """Refuse what is no range of powers of two.

        Raises:
            ValueError: An end that is no power of two, or ``low`` above ``high``.
        """
        for end in (self.low, self.high):
            if end < 1 or end & (end - 1):
                raise ValueError(f"log2 range ends must be powers of two, not {end}")
        if self.low > self.high:
            raise ValueError(f"log2 range [{self.low}, {self.high}] is empty: low is above high")

    def contains(self, value: ParameterValue) -> bool:
        """Whether the value is one of the powers."""
        if isinstance(value, bool) or not isinstance(value, int):
            return False
        return self.low <= value <= self.high and value & (value - 1) == 0

    def nearest(self, wanted: ParameterValue | None) -> ParameterValue:
        """The nearest power on a log scale; the lowest if nothing is wanted."""
        number = as_number(wanted)
        if number is None or number <= 0:
            return self.low
        return int(min(max(2 ** round(math.log2(number)), self.low), self.high))

    def size(self) -> int | None:
        """Number of values; ``None`` for a continuum."""
        return self.high.bit_length() - self.low.bit_length() + 1


@dataclass(frozen=True)
class FloatRange:
    """Real numbers from ``low`` to ``high``, both included."""

    low: float
    high: float

    def __post_init__(self) -> None:
        """Refuse an empty or endless range.

        Raises:
            ValueError: ``low`` not below ``high``, or an end that is not finite.
        """
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise ValueError(f"float range [{self.low}, {self.high}] must have finite ends")
        if self.low >= self.high:
            raise ValueError(f"float range [{self.low}, {self.high}] is empty")

    def contains(self, value: ParameterValue) -> bool:
        """Whether the value lies in the range."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.low <= value <= self.high

    def nearest(self, wanted: ParameterValue | None) -> ParameterValue:
        """The nearest number; the lowest if nothing is wanted."""
        number = as_number(wanted)
        return self.low if number is None else min(max(number, self.low), self.high)

    def size(self) -> int | None:
        """Number of values; ``None`` for a continuum."""
        return None


Parameter = Choices | IntRange | Log2Range | FloatRange
