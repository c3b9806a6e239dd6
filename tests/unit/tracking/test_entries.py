import math

import pytest

from objectives import Evaluation, Load, OperatingPoint, Verdict
from tuner.tracking import entries
from tuner.trial import Failed, FailureKind, Launch, Phase

LAUNCH = Launch(
    number=3,
    configuration={
        "max_num_seqs": 128,
        "precision": "fp8",
        "speculation": "off",
        "tensor_parallel_size": 4,
    },
    command=("vllm", "serve", "a model"),
    origin="default",
)


def point(*, invalid: tuple[str, ...] = (), **metrics: float | None) -> OperatingPoint:
    return OperatingPoint(load=Load.batch(16), metrics=metrics, invalid_reasons=invalid)


def evaluation(**slacks: float | None) -> Evaluation:
    return Evaluation(
        slacks=slacks, verdict=Verdict.UNDECIDED, is_within=True, undecided=("p99_tpot_ms",)
    )


def test_a_launch_is_named_by_number_and_values_in_one_order() -> None:
    assert entries.launch_name(LAUNCH) == "launch-0003 fp8 tp4 seqs128"


def test_a_parameter_without_a_short_name_is_written_out() -> None:
    launch = Launch(
        number=12,
        configuration={"stream_interval": 4, "speculation": "ngram", "num_speculative_tokens": 5},
    )
    assert entries.launch_name(launch) == "launch-0012 ngram draft5 stream_interval=4"


def test_a_point_is_named_by_launch_and_batch_size() -> None:
    assert entries.point_name(LAUNCH, point()) == "launch-0003 batch-016"


def test_a_launch_is_tagged_with_what_runs_are_filtered_by() -> None:
    tags = entries.launch_tags(LAUNCH)
    assert (tags["precision"], tags["tp"], tags["origin"]) == ("fp8", "4", "default")
    assert "    vllm serve 'a model'" in tags["mlflow.note.content"]


def test_only_finite_metrics_are_kept_and_absent_is_not_zero() -> None:
    metrics = {"a": 1, "b": None, "c": math.inf, "d": -math.inf, "e": math.nan, "f": 0.0}
    assert entries.finite(metrics) == {"a": 1.0, "f": 0.0}
    assert entries.non_finite(metrics) == "c=inf, d=-inf, e=nan"


def test_slacks_are_metrics_of_the_point() -> None:
    metrics = entries.point_metrics(point(p99_tpot_ms=44.0), evaluation(p99_tpot_ms=0.1))
    assert metrics == {"p99_tpot_ms": 44.0, "slack_p99_tpot_ms": 0.1}


def test_an_infinite_percentile_and_its_slack_are_named_in_a_tag() -> None:
    tags = entries.point_tags(
        LAUNCH, point(p99_ttft_ms=math.inf), evaluation(p99_ttft_ms=math.inf)
    )
    assert tags["non_finite_metrics"] == "p99_ttft_ms=inf, slack_p99_ttft_ms=inf"


def test_a_finite_point_has_no_tag_for_infinite_metrics() -> None:
    tags = entries.point_tags(LAUNCH, point(p99_ttft_ms=1.0), evaluation(p99_ttft_ms=-0.5))
    assert "non_finite_metrics" not in tags
    assert "invalid_reasons" not in tags


def test_an_invalid_point_says_why() -> None:
    tags = entries.point_tags(LAUNCH, point(invalid=("client_limited", "late")), evaluation())
    assert (tags["valid"], tags["invalid_reasons"]) == ("false", "client_limited; late")


def test_a_points_note_tells_each_slo() -> None:
    measured = point(p99_tpot_ms=44.0, p99_ttft_ms=None, error_frac=0.0)
    slacks = evaluation(p99_tpot_ms=0.1, p99_ttft_ms=None, error_frac=-1.0)
    assert entries.point_tags(LAUNCH, measured, slacks)["mlflow.note.content"].splitlines() == [
        "Batch 16: **undecided**.",
        "- p99_tpot_ms: 44, over its limit (+10.0%, undecided)",
        "- p99_ttft_ms: not measured",
        "- error_frac: 0, within its limit (-100.0%)",
    ]


def test_a_series_keeps_absent_metrics_absent() -> None:
    told = entries.series(point(output_tok_per_s=100.0, mean_running=3.0))
    assert entries.finite(told) == {"output_tok_per_s": 100.0}


@pytest.mark.parametrize(("exit_code", "expected"), [(None, None), (0, "0"), (-9, "-9")])
def test_a_failure_is_tagged_with_what_is_known(
    exit_code: int | None, expected: str | None
) -> None:
    failed = Failed(
        kind=FailureKind.OUT_OF_MEMORY,
        phase=Phase.START,
        message="the weights did not fit",
        evidence="torch.OutOfMemoryError: 2 GiB",
        exit_code=exit_code,
    )
    tags = entries.failure_tags(failed)
    assert tags.get("failure_exit_code") == expected
    assert "failure_parameter" not in tags
    assert tags["failure_kind"] == "out_of_memory"
    assert tags["mlflow.note.content"] == (
        "**out_of_memory** (start): the weights did not fit\n\n    torch.OutOfMemoryError: 2 GiB\n"
    )
