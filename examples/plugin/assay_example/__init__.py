"""A plug-in of Assay with one of each: a family of reward models, a shape of rows, a trainer's format and a logger."""
