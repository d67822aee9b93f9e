"""Which scorer a model needs: one for reward heads, one for judges that write, one for verifiers, one for served models."""

from actors.contracts.judge import Judge
from actors.contracts.served import Served
from actors.contracts.verifier import Verifier
from actors.endpoint.endpoint_engine import EndpointEngine
from actors.engine.process_engine import ProcessEngine
from actors.engine.protocol import Engine
from actors.reward_model import RewardModel
from actors.scorers.head_scorer import HeadScorer, Scorer
from actors.scorers.judge_scorer import JudgeScorer
from actors.scorers.served_scorer import ServedScorer
from actors.scorers.verifier_scorer import VerifierScorer


def scorer_of(model: RewardModel, engine: Engine, *, rehearsal: bool = False) -> Scorer:
    """The scorer of a model on its engine: of a verifier, a head or a judge.

    In a rehearsal a judge's verdicts are random, like the fake engine's.
    """
    family = model.family
    if isinstance(family, Judge):
        return JudgeScorer(family, model.weights, engine, model.answer_tokens, rehearsal=rehearsal)
    if isinstance(family, Served):
        assert isinstance(engine, EndpointEngine), "a served model has no engine here"
        return ServedScorer(family, engine)
    if isinstance(family, Verifier):
        assert isinstance(engine, ProcessEngine), "a verifier has no model"
        return VerifierScorer(family, engine)
    return HeadScorer(family, model.weights, engine, one_pass=model.one_pass)
