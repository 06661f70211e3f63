"""Describes the answers of a batch: verdicts, reward components, lengths, RookWorld's tasks, and exploration.

A policy that collapses repeats one answer, one candidate or one kind of move. Its reward may still rise.
"""

import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import chess

from rookery.advantages import without_signal
from rookery.candidates import candidates_of, distinct
from rookery.episodes import MOVE, TOOLS, opponent_kind
from rookery.games import SCORES
from rookery.prompt import GAME_TASK, task_of
from rookery.trace import Move, Outcome, TraceGroup

COMPONENT = "component_"
GROUPS, REWARD, PERFECT = "groups_", "reward_", "perfect_"
MOVES, BEST_MOVES = "moves_", "best_moves_"
RESULTS = ("won", "drawn", "lost")

_RESULT = re.compile(r": (1-0|0-1|1/2-1/2), ")
"""In what the environment says after the last turn of a game."""

UNREADABLE = {Outcome.NO_BOX, Outcome.TRUNCATED, Outcome.EMPTY_BOX, Outcome.TOO_LONG, Outcome.UNPARSABLE}
"""Outcomes without a readable move in a box."""


def describe_step(
    groups: list[TraceGroup],
    result: Mapping[str, float],
    *,
    version: int,
    dropped: Mapping[str, int],
    turn_rewards: Literal["sum", "mean"],
) -> dict[str, Any]:
    """Returns the row of a step before its commit, which stores it.

    `result` has the statistics of the update (`StepStats.row`). `version` is the version that the step makes.
    `dropped` counts, by reason, the groups dropped since the previous step. `turn_rewards` is the trainer's
    setting.
    """
    ages = ages_of(groups, version=version)
    return {
        "time": time.time(),
        "step": version,
        "version": version,
        **describe(groups, turn_rewards=turn_rewards),
        **result,
        "age_mean": statistics.fmean(ages),
        "age_max": max(ages),
        **{f"dropped_{reason}": count for reason, count in dropped.items()},
    }


def describe(groups: list[TraceGroup], *, turn_rewards: Literal["sum", "mean"] = "sum") -> dict[str, float]:
    """Returns statistics of a batch's verdicts. Rates are over them, regret over legal moves."""
    turns = [turn for group in groups for turn in group.turns]
    verdicts = [turn.verdict for turn in turns if turn.verdict]
    steps = [step.reward for verdict in verdicts for step in verdict.process_rewards]
    values = [step.reward for verdict in verdicts for step in verdict.value_rewards]
    claims = [
        claim.true
        for verdict in verdicts
        for sentence in verdict.sentences
        for claim in sentence.claims
        if claim.true is not None
    ]
    regrets = [verdict.regret for verdict in verdicts if verdict.regret is not None]
    return {
        "groups": len(groups),
        "completions": len(turns),
        "reward": statistics.fmean(reward for group in groups for reward in group.rewards),
        "reward_std": statistics.fmean(statistics.pstdev(group.rewards) for group in groups),
        "legal_rate": statistics.fmean(verdict.outcome is Outcome.LEGAL for verdict in verdicts),
        "box_rate": statistics.fmean(verdict.outcome not in UNREADABLE for verdict in verdicts),
        "regret": statistics.fmean(regrets) if regrets else float("nan"),
        "zero_variance_groups": sum(
            without_signal(group.turn_rewards, mean=turn_rewards == "mean") for group in groups
        ),
        "truncated": sum(turn.completion.truncated for turn in turns),
        **by_task(groups),
        **components(groups),
        **({"process_reward": statistics.fmean(steps)} if steps else {}),
        **({"value_reward": statistics.fmean(values)} if values else {}),
        **({"claims_true": statistics.fmean(claims)} if claims else {}),
        **lengths(groups),
        **exploration(groups),
        **episodes(groups),
        "generation_s": statistics.fmean(group.generation_s for group in groups),
        "reward_s": statistics.fmean(group.reward_s for group in groups),
    }


def ages_of(groups: list[TraceGroup], *, version: int) -> list[int]:
    """Returns how many versions behind the newest turn of each group was when `version` was trained on it."""
    return [version - 1 - max(group.policy_of(turn).number for turn in group.turns) for group in groups]


def components(groups: Sequence[TraceGroup]) -> dict[str, float]:
    """Returns the mean of each component of the reward over all traces; a missing one counts as 0.

    So the means add up to the mean reward if each verdict's components add up to its reward. RookWorld's
    tasks have other components each: their means are over the traces of the task, as `component_a_fen`.
    """
    means: dict[str, float] = {}
    for task, task_groups in _groups_by_task(groups).items():
        turns = [turn for group in task_groups for turn in group.turns]
        parts = [turn.rewards for turn in turns] + [turn.verdict.components for turn in turns if turn.verdict]
        traces = sum(len(group.traces) for group in task_groups)
        prefix = COMPONENT + (f"{task}_" if task else "")
        for name in sorted({name for part in parts for name in part}):
            means[prefix + name] = math.fsum(part.get(name, 0.0) for part in parts) / traces
    return means


def lengths(groups: Sequence[TraceGroup]) -> dict[str, float]:
    """Returns lengths of completions and prompts in tokens. The percentile uses the nearest rank."""
    completions = sorted(len(turn.completion.token_ids) for group in groups for turn in group.turns)
    return {
        "completion_length": statistics.fmean(completions),
        "completion_length_p95": completions[-(-95 * len(completions) // 100) - 1],
        "completion_length_max": completions[-1],
        "prompt_length": statistics.fmean(len(group.prompt_token_ids) for group in groups),
    }


def by_task(groups: Sequence[TraceGroup]) -> dict[str, float]:
    """Returns, for each of RookWorld's tasks, the number of groups, the mean reward and the share of perfect
    answers; empty if groups have no tasks."""
    figures: dict[str, float] = {}
    for task, task_groups in _groups_by_task(groups).items():
        rewards = [reward for group in task_groups for reward in group.rewards]
        if task:
            perfect = sum(reward > 1.0 - 1e-9 for reward in rewards)  # a mean of fields may be rounded
            figures |= {GROUPS + task: len(task_groups), REWARD + task: statistics.fmean(rewards)}
            figures[PERFECT + task] = perfect / len(rewards)
    return figures


def _groups_by_task(groups: Sequence[TraceGroup]) -> dict[str, list[TraceGroup]]:
    """The groups by RookWorld's task, `p` or `a`, or under an empty string if a move was asked for."""
    by_name: dict[str, list[TraceGroup]] = {}
    for group in groups:
        task = task_of(group.position, style=group.prompt.style)
        by_name.setdefault("" if task == GAME_TASK else task.lower(), []).append(group)
    return dict(sorted(by_name.items()))


def episodes(groups: Sequence[TraceGroup]) -> dict[str, float]:
    """Returns how episodes of several turns went; empty if there are none.

    `episode_turns` is their mean length in turns and `episode_turns_max` that of the longest,
    `calls_per_move` the number of calls of tools for each answer of episodes with tools, and `won_OPPONENT`,
    `drawn_OPPONENT` and `lost_OPPONENT` are the policy's shares of the games with a result against an
    opponent, such as `won_engine`. Games against itself are left out.
    """
    turns, calls, answers = [], 0, 0
    results: dict[str, Counter[str]] = {}
    for group in groups:
        kind = group.position.episode.partition(",")[0].strip()
        opponent = opponent_kind(group.position.episode)
        for trace in group.traces if kind not in ("", MOVE) else ():
            turns.append(len(trace.turns))
            if kind == TOOLS:
                calls += sum(turn.verdict is None for turn in trace.turns)
                answers += sum(turn.verdict is not None for turn in trace.turns)
            last = trace.turns[-1]
            result = _RESULT.search(last.observation)
            if opponent not in ("", "self") and result:
                white = (last.role or chess.COLOR_NAMES[chess.Board(group.position.fen).turn]) == "white"
                score = SCORES[result[1]] if white else 1.0 - SCORES[result[1]]
                results.setdefault(opponent, Counter())[RESULTS[round(2 - 2 * score)]] += 1
    return {
        **({"episode_turns": statistics.fmean(turns), "episode_turns_max": max(turns)} if turns else {}),
        **({"calls_per_move": calls / answers} if answers else {}),
        **{
            f"{result}_{opponent}": counts[result] / counts.total()
            for opponent, counts in sorted(results.items())
            for result in RESULTS
        },
    }


def exploration(groups: Sequence[TraceGroup]) -> dict[str, float]:
    """Returns how much the answers of a batch differ. Statistics without an answer to count are left out.

    `identical_answers` is the share of answers whose tokens equal those of another one of their group, and
    `distinct_candidates` the share of the moves named before the box that are not repetitions. `moves_PIECE`
    are shares of the legal moves, `best_moves_PIECE` those of the engine's best moves at the same positions,
    each counted once for each legal move. `piece_distance` is the total variation distance of the two: half
    the sum of the absolute differences.
    """
    repeated = total = 0
    distinct_shares: list[float] = []
    played: Counter[int | None] = Counter()
    best: Counter[int | None] = Counter()
    for group in groups:
        answers = Counter(tuple(turn.completion.token_ids for turn in trace.turns) for trace in group.traces)
        total += answers.total()
        repeated += sum(count for count in answers.values() if count > 1)
        for turn in group.turns:
            board = chess.Board(group.prompt_of(turn).fen)
            if moves := candidates_of(turn.completion.text, board):
                distinct_shares.append(len(distinct(moves)) / len(moves))
            if turn.verdict and turn.verdict.move and turn.verdict.best:
                played[_piece(board, turn.verdict.move)] += 1
                best[_piece(board, turn.verdict.best)] += 1
    return {
        "identical_answers": repeated / total,
        **({"distinct_candidates": statistics.fmean(distinct_shares)} if distinct_shares else {}),
        **(_piece_shares(played, best) if played else {}),
    }


def _piece_shares(played: Counter[int | None], best: Counter[int | None]) -> dict[str, float]:
    policy, engine = (
        {chess.piece_name(piece): counts[piece] / counts.total() for piece in chess.PIECE_TYPES}
        for counts in (played, best)
    )
    return {
        **{MOVES + name: share for name, share in policy.items()},
        **{BEST_MOVES + name: share for name, share in engine.items()},
        "piece_distance": sum(abs(policy[name] - engine[name]) for name in policy) / 2,
    }


def _piece(board: chess.Board, move: Move) -> int | None:
    return board.piece_type_at(chess.parse_square(move.uci[:2]))
