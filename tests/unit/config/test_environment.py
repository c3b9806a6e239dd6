from dataclasses import replace
from pathlib import Path

from tuner.config import public_env, read_study


def test_secrets_are_known_by_their_name() -> None:
    env = {"HF_TOKEN": "x", "OPENAI_API_KEY": "x", "db_password": "x", "MAX_TOKENS": "9", "A": "1"}
    assert public_env(env) == {"MAX_TOKENS": "9", "A": "1"}


def test_a_changed_secret_changes_no_study_and_is_not_told() -> None:
    study = replace(read_study("demo", folder=Path()), env={"HF_TOKEN": "old", "A": "1"})
    stored = study.to_canonical()
    assert "old" not in str(stored)
    assert replace(study, env={"HF_TOKEN": "new", "A": "1"}).changes_since(stored) == []
    changes = replace(study, env={"HF_TOKEN": "new", "A": "2"}).changes_since(stored)
    assert changes == ["env.A was 1 and is now 2"]
