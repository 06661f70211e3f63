"""A taskset for verifiers, and so for prime-rl: questions of `rookery data`, rewards of the reward service.

    eval rookery-chess --env.taskset.questions questions.jsonl

With `episode`, the questions are where episodes of several turns begin, such as games, and the service plays
the environment.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import verifiers.v1 as vf

from rookery_bridges.client import RewardClient, RewardFault, with_reasoning
from rookery_bridges.questions import Question, begins_with_book, first_request, read_questions


class ChessData(vf.TaskData):
    """A question, as it travels with the trace."""

    fen: str
    task: str = ""
    move: str = ""
    episode: dict[str, Any] | None = None
    """How an episode of several turns begins: a body of `/v1/episodes`."""


class ChessTaskConfig(vf.TaskConfig):
    """Which reward: of which service, by which scheme."""

    reward_url: str = ""
    """The reward service. Default: `ROOKERY_REWARD_URL`."""
    scheme: str = ""
    """The scheme. Default: the service's."""


class ChessTask(vf.Task[ChessData, vf.State, ChessTaskConfig]):
    """One question, with one answer or an episode."""

    @property
    def client(self) -> RewardClient:
        return RewardClient(self.config.reward_url, scheme=self.config.scheme)

    @vf.reward
    async def reward(self, trace: vf.Trace) -> float:
        """The reward of the service. A fault of the service is an error of the rollout, never a reward."""
        data = self.data
        if data.episode:
            return float(trace.info["reward"])  # of `ChessEnv`, unless it failed
        question = Question(data.id or "", [], data.fen, task=data.task, move=data.move)
        reply = _reply_with_reasoning(trace.last_reply, trace.assistant_messages)
        [verdict] = await self.client.ascore([question.answer(reply)])
        trace.record_metric("legal", float(verdict.legal))
        return verdict.reward


class ChessConfig(vf.TasksetConfig):
    """Where the questions are."""

    questions: str = "questions.jsonl"
    """JSON lines of `rookery data sample --style` or `rookery data tasks --jsonl`."""
    episode: str = ""
    """What begins at each question's position, such as `game,opponent=random,history=growing` or `tools`.
    Games with `start=book` need no questions."""
    style: str = "fen"
    """How the prompts of episodes show a position."""
    games: int = 1000
    """How many games with `start=book` there are."""
    task: ChessTaskConfig = ChessTaskConfig()


class ChessTaskset(vf.Taskset[ChessTask, ChessConfig]):
    """The questions of a file, as tasks."""

    def load(self) -> Iterable[ChessTask]:
        if self.config.episode:
            yield from self._episodes()
            return
        for question in read_questions(self.config.questions):
            # verifiers wants the system prompt apart.
            system = [turn["content"] for turn in question.prompt if turn["role"] == "system"]
            data = ChessData(
                id=question.id,
                prompt="\n".join(turn["content"] for turn in question.prompt if turn["role"] == "user"),
                system_prompt="\n".join(system) or None,
                fen=question.fen,
                task=question.task,
                move=question.move,
            )
            yield ChessTask(data, self.config.task)

    def _episodes(self) -> Iterator[ChessTask]:
        episode, style = self.config.episode, self.config.style
        if "calls=template" in episode:
            raise ValueError(f"episode {episode!r}: prompts of verifiers show no schemas: calls=tags")
        starts = (
            ((f"book:{number}", "") for number in range(self.config.games))
            if begins_with_book(episode)
            else ((question.id, question.fen) for question in read_questions(self.config.questions))
        )
        for number, (name, fen) in enumerate(starts):
            begin = first_request(episode, number=number, fen=fen, style=style)
            yield ChessTask(ChessData(id=name, fen=fen, episode=begin), self.config.task)


class ChessEnvConfig(vf.EnvConfig):
    """The one agent."""

    agent: vf.AgentConfig = vf.AgentConfig()


class ChessEnv(vf.Env[ChessEnvConfig]):
    """The agent answers a question, or goes through an episode, turn by turn."""

    async def run(self, task: ChessTask, agents: vf.Agents) -> None:
        if not task.data.episode:
            await agents.agent.run(task)
            return
        state = await task.client.aplay(task.data.episode)
        reward, news = 0.0, list(state.prompt or ())
        async with agents.agent.interaction(task) as interaction:
            while not state.done:
                segment = await interaction.turn(news)
                if segment.terminated and (fault := _fault_of(interaction.trace)):
                    raise RewardFault(f"the conversation ended without an answer: {fault}")
                before = len(state.prompt or ())
                reply = _reply_with_reasoning(segment.last_reply, segment.messages)
                following = {"cut": True} if segment.terminated else {"response": reply}
                state = await task.client.aplay(state.episode, **following)
                reward += state.reward
                if state.prompt is not None and len(state.prompt) < before + 2:
                    raise RewardFault(
                        f"episode {task.data.episode['episode']!r}: verifiers' conversations grow, "
                        "so a game needs history=growing"
                    )
                news = (state.prompt or [])[before + 1 :]
            trace = interaction.trace
            trace.info |= {"reward": reward, "end": state.observation}
            turns = state.episode["turns"]
            trace.record_metrics({"turns": len(turns), **turns[-1]["rewards"]})


def _reply_with_reasoning(reply: str, messages: vf.Messages) -> str:
    """The reply with its reasoning, which prime-rl's renderers and some servers split off."""
    for message in reversed(messages):
        if message.role == "assistant" and (message.content or "").strip() == reply:
            return with_reasoning(message.reasoning_content, reply)
    return reply


def _fault_of(trace: vf.Trace) -> str:
    """Why a conversation got no answer; empty if it reached a limit, or outgrew the model's context."""
    if trace.errors:
        return str(trace.errors[-1].message)
    if trace.stop_condition:
        return trace.stop_condition if trace.is_timeout else ""
    error = trace.calls[-1].error if trace.calls else None
    if error is None:
        return "the model was not asked"
    # Which is how endpoints refuse what is too long. Others are faults.
    return "" if error.status_code in (400, 413) else str(error.message)
