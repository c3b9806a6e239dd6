"""What people read of a study: rows, tables and words. Measures and starts nothing."""

from tuner.report.rows import (
    PointRow,
    Standing,
    describe_configuration,
    describe_misses,
    standing_of,
)
from tuner.report.tables import misses_table, number_text, pareto_csv, pareto_table

__all__ = [
    "PointRow",
    "Standing",
    "describe_configuration",
    "describe_misses",
    "misses_table",
    "number_text",
    "pareto_csv",
    "pareto_table",
    "standing_of",
]
