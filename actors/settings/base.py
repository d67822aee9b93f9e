"""What all settings have in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from actors.settings.credentials import check_no_credentials


class Settings(BaseModel):
    """Frozen, an unknown key is an error, and so is a credential. No error that is raised here shows what was given."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _hold_no_credentials(cls, values: Any) -> Any:
        """Check the raw values; nested sections that are `Settings` objects have been checked already."""
        check_no_credentials(values)
        return values
