"""Launches and points that the tests log, and how they open the local store."""

from collections.abc import Mapping
from pathlib import Path

from objectives import Evaluation, Load, OperatingPoint, Verdict
from tuner.tracking import MlflowTracker
from tuner.trial import Launch

LAUNCH = Launch(
    number=3,
    configuration={"max_num_seqs": 128, "precision": "fp8", "enable_prefix_caching": True},
    command=("printf", "%s\\n", "serve", "a model", "--json={'a': 1}"),
    is_open=True,
)


def measured(
    batch_size: int, metrics: Mapping[str, float | None] | None = None
) -> tuple[OperatingPoint, Evaluation]:
    """A point whose throughput is a hundred times its batch size, and its evaluation."""
    values = {"output_tok_per_s": 100.0 * batch_size, "p99_tpot_ms": 10.0 + batch_size}
    point = OperatingPoint(load=Load.batch(batch_size), metrics=metrics or values)
    evaluation = Evaluation(
        slacks={"p99_tpot_ms": -0.5}, verdict=Verdict.FEASIBLE, is_within=True, undecided=()
    )
    return point, evaluation


def open_local(mlruns: Path) -> MlflowTracker:
    return MlflowTracker.open(uri=None, mlruns_dir=mlruns, study="demo", description="**demo**")
