import pytest

from objectives import CATALOGUE, Direction, nearest_metric

# What a name has to end with, by unit. Counts and shares have no unit and say so themselves.
ENDINGS = {
    "ms": ("_ms",),
    "s": ("_s",),
    "1/s": ("_per_s",),
    "tok/s": ("_tok_per_s", "_tok_per_s_per_gpu"),
    "tok": ("_tok",),
    "W": ("_w",),
    "J": ("_j",),
}


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_a_name_carries_its_unit(name: str) -> None:
    metric = CATALOGUE[name]
    assert metric.name == name
    if metric.unit:
        assert name.endswith(ENDINGS[metric.unit])
    else:
        is_count = name.startswith(("n_", "mean_", "max_"))
        assert is_count or name.endswith("_frac")
        assert not name.endswith(("_s", "_ms", "_tok"))


def test_every_latency_has_a_mean_and_four_percentiles() -> None:
    expected = {
        f"{statistic}_{quantity}_ms"
        for statistic in ("mean", "p50", "p90", "p95", "p99")
        for quantity in ("ttft", "tpot", "itl", "e2el")
    }
    assert {metric.name for metric in CATALOGUE.values() if metric.quantity} == expected


def test_a_percentile_knows_its_quantile() -> None:
    quantiles = {
        metric.name[:3]: metric.quantile_frac for metric in CATALOGUE.values() if metric.quantity
    }
    assert quantiles == {"mea": None, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def test_latencies_and_errors_are_to_minimize_and_rates_to_maximize() -> None:
    wanted = {
        metric.name for metric in CATALOGUE.values() if metric.direction is Direction.MAXIMIZE
    }
    assert wanted == {
        "output_tok_per_s",
        "output_tok_per_s_per_gpu",
        "total_tok_per_s",
        "request_per_s",
        "goodput_request_per_s",
    }
    unwanted = {
        metric.name for metric in CATALOGUE.values() if metric.direction is Direction.MINIMIZE
    }
    latencies = {metric.name for metric in CATALOGUE.values() if metric.quantity}
    assert unwanted == latencies | {"error_frac", "n_failed"}


def test_each_metric_says_who_sees_it_and_what_it_is() -> None:
    for metric in CATALOGUE.values():
        assert metric.source in {"client", "server", "driver"}
        assert metric.definition.endswith(".")


def test_the_server_never_sees_a_latency() -> None:
    assert not [m.name for m in CATALOGUE.values() if m.source == "server" and m.quantity]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("p99_tpot", "p99_tpot_ms"),
        ("P99_ttft_ms", "p99_ttft_ms"),
        ("output_toks_per_s", "output_tok_per_s"),
        ("error_rate_frac", "error_frac"),
        ("xyzzy", None),
    ],
)
def test_a_mistyped_name_finds_the_one_meant(typed: str, meant: str | None) -> None:
    assert nearest_metric(typed) == meant
