"""Make the archive on which `potluck plan` is tested: full runs, looks and dry runs of many situations.

    python experiments/plan/archive.py                # all situations; what is there is not made again
    python experiments/plan/archive.py --first 20     # the first ones only: they cover all data sets

It writes experiments/plan/archive/DATA.jsonl.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from potluck.planner import archive

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, help="so many situations (default: all)")
    chosen = parser.parse_args().first
    spec = archive.Spec.read(HERE / "archive.toml")
    (HERE / "archive").mkdir(exist_ok=True)
    for there in spec.situations()[:chosen]:
        began = time.process_time()
        archive.make(spec, there, HERE / "archive" / f"{there.data}.jsonl")
        print(f"{there.name}: {time.process_time() - began:.0f} s of processor time", flush=True)


if __name__ == "__main__":
    main()
