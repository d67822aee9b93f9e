"""`python -m bench NAME`: run a measurement and print its figures."""

import importlib
import pkgutil
import sys

import bench


def main() -> None:
    """Run the measurement that the command line names."""
    names = [module.name for module in pkgutil.iter_modules(bench.__path__) if not module.name.startswith("_")]
    if len(sys.argv) < 2 or sys.argv[1] not in names:
        sys.exit(f"usage: python -m bench NAME, where NAME is one of: {', '.join(names)}")
    importlib.import_module(f"bench.{sys.argv[1]}").main(sys.argv[2:])


if __name__ == "__main__":
    main()
