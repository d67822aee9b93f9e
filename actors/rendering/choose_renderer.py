"""Which renderer a model needs: one for prompts of token ids, of messages, of conversations, or of texts to compare."""

from actors.contracts.judge import Judge
from actors.contracts.served import Served
from actors.contracts.verifier import Verifier
from actors.rendering.chat_renderer import ChatRenderer
from actors.rendering.conversation_renderer import ConversationRenderer
from actors.rendering.renderer import Renderer
from actors.rendering.verifier_renderer import VerifierRenderer
from actors.reward_model import RewardModel
from actors.settings.replica import RenderSettings

AnyRenderer = Renderer | VerifierRenderer | ChatRenderer | ConversationRenderer


def renderer_of(model: RewardModel, settings: RenderSettings) -> AnyRenderer:
    """The renderer of a model, which loads its tokenizer where it has one.

    Raises as `Renderer`, and `SettingsError` for a judge that no endpoint can be asked as.
    """
    family = model.family
    if isinstance(family, Verifier):
        return VerifierRenderer(family, settings)
    if isinstance(family, Served):
        return ConversationRenderer(family, settings)
    if model.remote is not None and isinstance(family, Judge):
        return ChatRenderer(family, settings)
    return Renderer(model, settings)
