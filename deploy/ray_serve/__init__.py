"""The endpoint on Ray Serve: ingress, proxies, port, autoscaling, spot nodes.

Knows no route; `deploy.web` has the application it serves.
"""
