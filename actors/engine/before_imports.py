"""Imported first in a process that only imports, and is forked: what holds for all its imports."""

import gc
import os

from actors.engine.vllm_environment import set_environment

gc.disable()
set_environment()

# vLLM imports Ray, whose library keeps these two for ever from when it is loaded. A forked worker of Ray must have both: a
# process with which it ends, which is here the server, since there may be no raylet yet; and the null job, as in workers
# that Ray starts before any job.
os.environ["RAY_RAYLET_PID"] = str(os.getpid())
os.environ["RAY_JOB_ID"] = "ffffffff"
