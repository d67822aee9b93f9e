"""NeMo-Gym's resources server: an `app.py` whose last line is `AssayServer.run_webserver()`. It asks ASSAY_URL.

Gym's `reward` can't be null: a missing number masks the sample, with Gym's words for why.
"""

from nemo_gym.base_resources_server import BaseMultiRewardVerifyResponse, BaseVerifyRequest, SimpleResourcesServer
from pydantic import ConfigDict

from assay_client._client import default_client
from assay_client._turns import read_rollout


class AssayVerifyResponse(BaseMultiRewardVerifyResponse):
    """`instance_config` holds the mask where NeMo-RL reads it; `_ng_failure_` fields come beside those declared."""

    model_config = ConfigDict(extra="allow")
    mask_sample: bool
    instance_config: dict[str, bool]
    failure_kind: str | None
    failure_reason: str | None


class AssayServer(SimpleResourcesServer):
    """Judges each rollout by itself."""

    async def verify(self, body: BaseVerifyRequest) -> AssayVerifyResponse:
        sent = body.model_dump(mode="json")
        conversation = read_rollout(sent["responses_create_params"], sent["response"]["output"])
        (reward,) = await default_client().rewards_async([conversation])
        # 0.0 only beside a mask: Gym's field can't be null.
        masked, number = reward.value is None, reward.value or 0.0
        # By these alone Gym's collector leaves the 0.0 out of its metrics, and knows what would fail again.
        error = f"assay:{reward.reason} {reward.message}".rstrip()
        failure = {"class": "judge_failed", "judge_error": error, "terminal": reward.status == "rejected"}
        return AssayVerifyResponse(
            **sent, **({f"_ng_failure_{name}": value for name, value in failure.items()} if masked else {}),
            reward=number, reward_components={"reward": number}, failure_reason=reward.message or reward.reason,
            failure_kind=f"assay:{reward.reason}" if masked else None, mask_sample=masked,
            instance_config={"mask_sample": masked},
        )  # fmt: skip
