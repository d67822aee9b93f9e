"""What others published, as data: figures with source and convention, files by their SHA-256, and how authors ran models."""
