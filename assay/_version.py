"""The installed version. pyproject.toml is the only place where it is written."""

from importlib.metadata import version

__version__ = version("assay")
