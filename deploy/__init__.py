"""How Assay reaches a cluster and its users: the endpoint on Ray Serve."""
