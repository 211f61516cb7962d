"""The documents' own strategy and device, and a script, as mypy sees them at a user's: `python -m tests.docs.typed`, in
`make lint`."""

import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.docs.pages import ALL_BLOCKS, ROOT

# How a block of the documents is told, by the name of the module that it is.
BLOCKS = {
    "coarse": "class CoarseToFine(",
    "test_coarse": "from coarse import",
    "mycard": "class MyCard(",
    "test_mycard": "from mycard import",
}
# A line that ends in a comment is an error of that kind.
SCRIPT = """
import autocap

with autocap.tune(metric="energy", max_slowdown="5%", gpus=[0, 1], strategy_option={"trials": 5}) as run:
    pass
if run.result.chosen is not None:
    print(run.result.chosen.cap_w, run.result.trials_dataframe())

@autocap.tune(quick=True)
def train(epochs: int) -> str:
    return str(epochs)

said: str = train(3)
loaded: str = autocap.load("autocap-runs/one").ended_because
train("3")  # arg-type
autocap.tune(metrik="eds")  # call-arg
autocap.tune(metric="engy")  # arg-type
autocap.tune(observe="yes")  # arg-type
"""


def main() -> int:
    with TemporaryDirectory() as folder:
        for name, text in BLOCKS.items():
            (block,) = (block for block in ALL_BLOCKS if text in block.text)
            Path(folder, f"{name}.py").write_text(block.text)
        Path(folder, "script.py").write_text(SCRIPT)
        # As of an installed package: what is wrong in the package itself is not the user's.
        mypy = (sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary")
        done = subprocess.run(
            [*mypy, "--cache-dir", str(ROOT / ".mypy_cache" / "docs"), *(f"{name}.py" for name in (*BLOCKS, "script"))],
            cwd=folder,
            env={"MYPYPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
    lines = SCRIPT.splitlines()
    wanted = [f"script.py:{at}: {line.split('# ')[1]}" for at, line in enumerate(lines, 1) if "# " in line]
    told = re.findall(r"^(\S+:\d+: )error: .*\[(.*)\]$", done.stdout, re.MULTILINE)
    if sorted(place + kind for place, kind in told) == sorted(wanted):
        return 0
    print(done.stdout, done.stderr, f"but of the script, which is to have: {wanted}", sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
