"""The whole lines of RookWorld's data, without a newline: a prompt and its answer."""

from rookery.rookworld import PolicyLine, StateLine, policy_answer, policy_prompt, state_answer, state_prompt


def policy_line(line: PolicyLine, *, layout: str = "published") -> str:
    return policy_prompt(line.fen, layout=layout) + policy_answer(line.answer, layout=layout)


def state_line(line: StateLine) -> str:
    return state_prompt(line.fen, line.move, line.recent) + state_answer(line.answer)
