"""What all settings have in common."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """Frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
