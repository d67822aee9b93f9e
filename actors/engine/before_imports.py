"""Imported first in a process that only imports, and is forked: what holds for all its imports."""

import gc
import os

from actors.engine.vllm_environment import set_environment

gc.disable()
set_environment()
# What is said while importing isn't for whoever reads this command's output. A forked process has the output of the process
# that requests it.
_devnull = os.open(os.devnull, os.O_WRONLY)
os.dup2(_devnull, 1)
os.dup2(_devnull, 2)

# vLLM imports Ray, whose library keeps these two for ever from when it is loaded. A forked worker of Ray must have both: a
# process with which it ends, which is here the server, since there may be no raylet yet; and the null job, as in workers
# that Ray starts before any job.
os.environ["RAY_RAYLET_PID"] = str(os.getpid())
os.environ["RAY_JOB_ID"] = "ffffffff"
