"""Hypothesis strategies for the records of `rookery.trace`, and one group with a value everywhere."""

from dataclasses import replace

from hypothesis import strategies as st

from rookery.trace import (
    Claim,
    Completion,
    EngineStamp,
    Evaluation,
    Message,
    Move,
    Outcome,
    Phase,
    PolicyVersion,
    Position,
    ProcessReward,
    Prompt,
    Sampling,
    Sentence,
    Trace,
    TraceGroup,
    Turn,
    Verdict,
)
from tests.builders import changed

uint32 = st.integers(0, 2**32 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=20)

moves = st.builds(Move, uci=texts, san=texts)
evaluations = st.one_of(
    st.builds(Evaluation, cp=st.integers(-(2**31), 2**31 - 1)),
    st.builds(Evaluation, mate=st.integers(-(2**31), 2**31 - 1)),
)
positions = st.builds(
    Position,
    id=texts,
    fen=texts,
    ply=uint32,
    phase=st.sampled_from(Phase),
    game_id=texts,
    last_moves=st.lists(texts, max_size=10).map(tuple),
    white_elo=st.none() | uint32,
    black_elo=st.none() | uint32,
    task=texts,
    move=texts,
    target=texts,
    episode=texts,
)
claims = st.builds(
    Claim, concept=texts, start=uint32, end=uint32, true=st.none() | st.booleans(), weight=st.none() | finite
)
sentences = st.builds(
    Sentence,
    start=uint32,
    end=uint32,
    read=st.booleans(),
    claims=st.lists(claims, max_size=2).map(tuple),
    effect=st.none() | finite,
    influence=st.none() | finite,
)
process_rewards = st.builds(ProcessReward, start=uint32, end=uint32, reward=finite)
verdicts = st.builds(
    Verdict,
    reward=finite,
    outcome=st.sampled_from(Outcome),
    reward_version=texts,
    move=st.none() | moves,
    best=st.none() | moves,
    win_before=st.none() | finite,
    win_after=st.none() | finite,
    regret=st.none() | finite,
    eval_before=st.none() | evaluations,
    eval_after=st.none() | evaluations,
    components=st.dictionaries(texts, finite, max_size=3),
    engine=st.none() | st.builds(EngineStamp, id=texts, nodes=st.integers(0, 2**64 - 1)),
    sentences=st.lists(sentences, max_size=2).map(tuple),
    process_rewards=st.lists(process_rewards, max_size=2).map(tuple),
    value_rewards=st.lists(process_rewards, max_size=2).map(tuple),
)
# The wire carries log-probabilities as 32-bit floats, as the server computed them.
completions = st.builds(
    lambda tokens, **values: Completion(
        token_ids=tuple(token for token, _ in tokens),
        logprobs=tuple(logprob for _, logprob in tokens),
        **values,
    ),
    st.lists(st.tuples(uint32, st.floats(width=32, allow_nan=False, allow_infinity=False)), max_size=5),
    text=texts,
    finish_reason=texts,
    seed=st.integers(-(2**63), 2**63 - 1),
)
prompts = st.builds(
    Prompt,
    style=texts,
    messages=st.lists(st.builds(Message, role=texts, content=texts), max_size=3).map(tuple),
    fen=texts,
)
policies = st.builds(PolicyVersion, number=st.integers(0, 2**64 - 1), sha256=texts)
prompt_tokens = st.lists(uint32, min_size=1, max_size=5).map(tuple)
continuations = st.tuples(st.none(), st.just(()), st.just(False)) | st.tuples(
    prompts, prompt_tokens, st.booleans()
)


def turns(verdict: st.SearchStrategy[Verdict | None]) -> st.SearchStrategy[Turn]:
    return st.builds(
        lambda continuation, **values: Turn(
            prompt=continuation[0], prompt_token_ids=continuation[1], continues=continuation[2], **values
        ),
        continuations,
        completion=completions,
        verdict=verdict,
        policy=st.none() | policies,
        observation=texts,
        rewards=st.dictionaries(texts, finite, max_size=2),
        role=texts,
    )


traces = st.builds(
    lambda id, before, last: Trace(id, (*before, last)),
    texts,
    st.lists(turns(st.none() | verdicts), max_size=2),
    turns(verdicts),
)
groups = st.builds(
    TraceGroup,
    id=texts,
    run=texts,
    position=positions,
    prompt=prompts,
    prompt_token_ids=prompt_tokens,
    policy=policies,
    base_model=texts,
    sampling=st.builds(Sampling, temperature=finite, top_p=finite, top_k=uint32, max_tokens=uint32),
    traces=st.lists(traces, min_size=1, max_size=3).map(tuple),
    created_at=finite,
    generation_s=finite,
    reward_s=finite,
)

POSITION = Position(
    id="1a2b3c4d:7:2",
    fen="rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq - 0 2",
    ply=2,
    phase=Phase.OPENING,
    game_id="abcdefgh",
    last_moves=("e2e4", "e7e5"),
    white_elo=1500,
    black_elo=1600,
    task="A",
    move="g1f3",
    target="rnbqkbnr/pppp1ppp/8/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R b KQkq - 1 2+0.001+0+0",
    episode="game,opponent=random",
)

GROUP = TraceGroup(
    id="g1",
    run="r1",
    position=POSITION,
    prompt=Prompt("fen", (Message("system", "Play."), Message("user", POSITION.fen)), POSITION.fen),
    prompt_token_ids=(1, 2, 300),
    policy=PolicyVersion(42, "ab" * 32),
    base_model="rook-tiny",
    sampling=Sampling(temperature=0.9, top_p=0.95, top_k=20, max_tokens=32),
    traces=(
        Trace(
            "g1-0",
            (
                Turn(
                    Completion("\\boxed{Nf3}", (5, 6), (-0.5, -0.25), "stop", 11),
                    Verdict(
                        reward=-0.125,
                        outcome=Outcome.LEGAL,
                        reward_version="delta-1",
                        move=Move("g1f3", "Nf3"),
                        best=Move("d2d4", "d4"),
                        win_before=0.5,
                        win_after=0.375,
                        regret=0.125,
                        eval_before=Evaluation(cp=-30),
                        eval_after=Evaluation(mate=-3),
                        components={"regret": -0.125, "format": 0.0},
                        engine=EngineStamp("Stockfish 17", 2000),
                        process_rewards=(ProcessReward(3, 7, -0.25),),
                        sentences=(
                            Sentence(
                                1,
                                18,
                                True,
                                (Claim("loose piece", 1, 17, true=False, weight=0.5),),
                                effect=0.25,
                                influence=-0.25,
                            ),
                        ),
                    ),
                ),
            ),
        ),
        Trace(
            "g1-1",
            (
                Turn(
                    Completion("e4", (7,), (-2.0,), "length", 12),
                    Verdict(reward=-1.2, outcome=Outcome.NO_BOX, reward_version="delta-1"),
                ),
            ),
        ),
    ),
    created_at=1700000000.25,
    generation_s=0.5,
    reward_s=0.125,
)
"""A group in which every field of version 1 of the wire is set at least once."""

_VERDICT = GROUP.traces[0].verdict
_UNMEASURED = replace(_VERDICT.sentences[0], effect=None, influence=None)
TRUTH_GROUP = replace(
    GROUP,
    traces=(
        changed(GROUP.traces[0], verdict=replace(_VERDICT, sentences=(_UNMEASURED,))),
        *GROUP.traces[1:],
    ),
)
"""As it was before sentences had effects."""

_ASKED, _ANSWERED = (trace.turns[0] for trace in GROUP.traces)
EPISODES = replace(
    GROUP,
    prompt=replace(GROUP.prompt, tools="[1]"),
    traces=(
        Trace(
            "g1-0",
            (
                replace(
                    _ASKED,
                    prompt=Prompt("fen", (Message("user", "a7a6. Your move?"),), POSITION.fen, "[2]"),
                    prompt_token_ids=(8, 9),
                    continues=True,
                    policy=PolicyVersion(43, "cd" * 32),
                    observation="You won.",
                    rewards={"result": 1.0},
                    role="white",
                ),
            ),
        ),
        Trace("g1-1", (replace(_ANSWERED, verdict=None, observation="Legal moves: e4"), _ASKED)),
    ),
)
"""A group with turns, as it was before verdicts had value rewards."""

VALUES_GROUP = replace(
    EPISODES,
    traces=(
        changed(
            EPISODES.traces[0],
            verdict=replace(EPISODES.traces[0].verdict, value_rewards=(ProcessReward(8, 11, 0.75),)),
        ),
        EPISODES.traces[1],
    ),
)
"""A group with turns, in which every field of the wire is set at least once."""
