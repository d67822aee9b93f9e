"""The endpoint on Ray Serve: ingress, proxies, port, autoscaling.

Knows no route; `deploy.web` has the application it serves.
"""
