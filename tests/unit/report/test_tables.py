from dataclasses import replace
from pathlib import Path

from objectives import Direction, Load, Objective, OperatingPoint, Slo, evaluate
from tuner.config import Study, read_study
from tuner.report import pareto_table
from tuner.report.rows import PointRow
from tuner.trial import Launch

POINT = OperatingPoint(
    load=Load.batch(4),
    metrics={"output_tok_per_s": 81.26, "p99_e2el_ms": 912.345, "goodput_request_per_s": None},
    exceedances={},
)


def header_and_row(study: Study) -> tuple[str, str]:
    row = PointRow(
        launch=Launch(number=0, configuration={}),
        point=POINT,
        evaluation=evaluate(POINT, study.slos),
        run_id=None,
    )
    header, line = pareto_table([row], study).splitlines()
    return header, line


def test_a_metric_of_an_objective_or_limit_has_a_column_of_its_own() -> None:
    demo = read_study("demo", folder=Path())
    wanted = replace(
        demo,
        objectives=(Objective(metric="goodput_request_per_s", direction=Direction.MAXIMIZE),),
        slos=(Slo(metric="p99_e2el_ms", limit=1000),),
    )
    header, line = header_and_row(wanted)
    assert "goodput_request_per_s  p99_e2el_ms  n  SLOs" in header
    assert line.split()[:10] == ["1", "81.3", "4", "-", "-", "-", "-", "-", "912.35", "-"]


def test_the_usual_metrics_have_one_column_each() -> None:
    header, _ = header_and_row(read_study("demo", folder=Path()))
    assert "_ms" not in header
    assert header.count("TPOT P99") == 1
