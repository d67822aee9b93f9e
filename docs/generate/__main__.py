"""Write the reference: `python -m docs.generate`."""

from pathlib import Path

from docs.generate import pages
from docs.generate.write import write

if __name__ == "__main__":
    write(pages(), Path(__file__).parent.parent / "reference")
