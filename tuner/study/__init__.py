"""Studies: proposing, launching, learning, remembering. The only place that imports Optuna."""
