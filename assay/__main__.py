"""`python -m assay`: the command line."""

from pipelines.cli.app import main

if __name__ == "__main__":
    main()
