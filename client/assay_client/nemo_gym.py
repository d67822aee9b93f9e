"""NeMo-Gym's resources server: an `app.py` whose last line is `AssayServer.run_webserver()`. It asks ASSAY_URL.

Gym's `reward` can't be null: a missing number masks the sample, with Gym's words for why.
"""

from nemo_gym.base_resources_server import BaseMultiRewardVerifyResponse, BaseVerifyRequest, SimpleResourcesServer

from assay_client._client import default_client
from assay_client._turns import read_rollout


class AssayVerifyResponse(BaseMultiRewardVerifyResponse):
    """`instance_config` holds the mask where NeMo-RL reads it."""

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
        return AssayVerifyResponse(
            **sent, reward=number, reward_components={"reward": number}, failure_reason=reward.message or reward.reason,
            failure_kind=f"assay:{reward.reason}" if masked else None, mask_sample=masked,
            instance_config={"mask_sample": masked},
        )  # fmt: skip
