"""Tracking in MLflow. Everything that is logged can be logged again from the study's storage."""

from tuner.tracking.mlflow_tracker import MlflowTracker
from tuner.tracking.records_file import read_records, write_records
from tuner.tracking.ui import check_store, ui_command, ui_environment

__all__ = [
    "MlflowTracker",
    "check_store",
    "read_records",
    "ui_command",
    "ui_environment",
    "write_records",
]
