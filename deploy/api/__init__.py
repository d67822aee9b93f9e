"""The wire formats: one file each, and in each nothing but a translation to the core's requests and from its scores."""

from deploy.api import chat, classify, compare, decisions, get_reward, models, pooling, rerank, rewards, score

ROUTERS = tuple(
    module.router for module in (rewards, chat, pooling, classify, score, rerank, decisions, get_reward, compare, models)
)
