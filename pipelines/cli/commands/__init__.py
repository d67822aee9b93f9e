"""The commands, a module each or for a family of them: their options, and the job that they start."""
