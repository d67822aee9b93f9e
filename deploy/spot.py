"""The old place of `deploy/ray_serve/spot.py`, for clusters whose start commands name it. Goes with the next release."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).parent / "ray_serve" / "spot.py"), run_name="__main__")
