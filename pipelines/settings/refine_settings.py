"""Settings of `refine`: the models that draft, criticise and edit."""

from pydantic import Field

from actors.settings.base import OPTION, Settings
from actors.settings.replica import PolicyEngineSettings, PolicySettings
from pipelines.settings.run_settings import JudgingSettings


class RefiningSettings(Settings):
    """The models that criticise and edit drafts, and the number of drafts and feedbacks."""

    feedback: str | None = Field(default=None, json_schema_extra=OPTION)
    """model that criticises drafts; default: the policy"""
    edit: str | None = Field(default=None, json_schema_extra=OPTION)
    """model that edits drafts by the feedback; default: the policy"""
    drafts: int = Field(default=4, ge=1, le=256, json_schema_extra=OPTION)
    """number of drafts per prompt"""
    feedbacks: int = Field(default=2, ge=1, le=64)
    """number of feedbacks per draft; each feedback yields one edit"""
    feedback_prompt: str | None = None
    """file with the feedback prompt, a Jinja template over {{ conversation }} (or turns) and {{ response }}"""
    edit_prompt: str | None = None
    """file with the edit prompt, a Jinja template; also has {{ feedback }}"""


class RefineSettings(JudgingSettings):
    """All settings of `refine`: three models that write, and a judge. The writers share the policy's settings."""

    policy: PolicySettings
    policy_engine: PolicyEngineSettings = PolicyEngineSettings()
    refining: RefiningSettings = RefiningSettings()
