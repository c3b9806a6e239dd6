import subprocess
import sys


def test_importing_tracking_pulls_in_nothing_heavy() -> None:
    script = (
        "import sys, tuner.tracking;"
        "heavy = {'mlflow', 'pandas', 'sqlalchemy', 'requests', 'optuna', 'torch'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
