"""What is measured and wanted: metrics, percentiles, SLOs, verdicts, fronts and picks.

Pure: no I/O, no clock, no framework.
"""

from objectives.catalogue import CATALOGUE, Direction, Metric, nearest_metric
from objectives.choose import choose, nearest
from objectives.clumping import count_exceedance, count_exceedances
from objectives.evaluation import Evaluation, evaluate
from objectives.hypervolume import hypervolume
from objectives.load import Load, LoadKind
from objectives.objective import Objective, to_losses
from objectives.operating_point import Exceedance, OperatingPoint, Verdict, bound_metrics
from objectives.pareto import is_on_front, pareto_front
from objectives.percentiles import n_required, percentile, percentile_interval
from objectives.records import RequestRecord
from objectives.server_evidence import Scrape, evidence_of, limited_by
from objectives.share_test import decide_share
from objectives.share_watch import ShareWatch
from objectives.slo import Slo
from objectives.summary import Summary, Window, summarise

__all__ = [
    "CATALOGUE",
    "Direction",
    "Evaluation",
    "Exceedance",
    "Load",
    "LoadKind",
    "Metric",
    "Objective",
    "OperatingPoint",
    "RequestRecord",
    "Scrape",
    "ShareWatch",
    "Slo",
    "Summary",
    "Verdict",
    "Window",
    "bound_metrics",
    "choose",
    "count_exceedance",
    "count_exceedances",
    "decide_share",
    "evaluate",
    "evidence_of",
    "hypervolume",
    "is_on_front",
    "limited_by",
    "n_required",
    "nearest",
    "nearest_metric",
    "pareto_front",
    "percentile",
    "percentile_interval",
    "summarise",
    "to_losses",
]
