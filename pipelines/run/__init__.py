"""The main job, in the order of its journey: `prepare` a run, `scoring` it, in the `runtime` of Ray; and `sampling`."""
