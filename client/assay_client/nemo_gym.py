"""NeMo-Gym's resources server: an `app.py` whose last line is `AssayServer.run_webserver()`. It asks ASSAY_URL.

Gym's `reward` can't be null: a missing number masks the sample, with Gym's words for why.
"""

from typing import Any

from nemo_gym.base_resources_server import BaseMultiRewardVerifyResponse, BaseVerifyRequest, SimpleResourcesServer

from assay_client._client import default_client


class AssayVerifyResponse(BaseMultiRewardVerifyResponse):
    """`instance_config` holds the mask where NeMo-RL reads it."""

    mask_sample: bool
    instance_config: dict[str, bool]
    failure_kind: str | None
    failure_reason: str | None


class AssayServer(SimpleResourcesServer):
    """Judges each rollout by itself."""

    async def verify(self, body: BaseVerifyRequest) -> AssayVerifyResponse:
        """As Gym calls it."""
        sent = body.model_dump(mode="json")
        asked = sent["responses_create_params"]["input"]
        items = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
        turns = [_turn(item) for item in [*items, *sent["response"]["output"]] if item.get("type") != "reasoning"]
        (reward,) = await default_client().rewards_async([{"messages": turns}])
        masked, number = reward.value is None, reward.value or 0.0
        return AssayVerifyResponse(
            **sent, reward=number, reward_components={"reward": number}, failure_reason=reward.message or reward.reason,
            failure_kind=f"assay:{reward.reason}" if masked else None, mask_sample=masked,
            instance_config={"mask_sample": masked},
        )  # fmt: skip


def _turn(item: dict[str, Any]) -> dict[str, Any]:
    """An item of OpenAI's Responses as a turn of a chat."""
    if item.get("type") == "function_call":
        call = {"id": item["call_id"], "type": "function", "function": {key: item[key] for key in ("name", "arguments")}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if item.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
    content = item["content"]
    text = content if isinstance(content, str) else "".join(part["text"] for part in content)
    return {"role": item["role"], "content": text}
