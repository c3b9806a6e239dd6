"""The study file: schema, reading, checking. The only place where outside text becomes a study."""

from tuner.config.environment import public_env
from tuner.config.find import check_models_exist, preset_names, read_study
from tuner.config.study import Study

__all__ = ["Study", "check_models_exist", "preset_names", "public_env", "read_study"]
