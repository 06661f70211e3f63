"""The help of a command line, and the errors about its settings. `rookery.settings` makes the parser."""

import difflib
import os
import re
import textwrap
from argparse import Action, ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import cleandoc
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import SettingsError

from rookery.errors import QUOTED_CHARS, validation_message
from rookery.masking import mask_setting

LAST_GROUP = "access"
"""The group of flags that is below all others."""

_PROTECTED = "\ue00f"
_STANDS_FOR = {ord(character): 0xE000 + number for number, character in enumerate(',"\\[]{} \t')}
_RESTORED = {new: old for old, new in _STANDS_FOR.items()}


def protect(text: str) -> str:
    """An argument in which pydantic-settings splits and strips nothing, and reads nothing as JSON. Raises
    `ArgumentTypeError` if it has a control character, or a private one that stands for another here."""
    if re.search("[\x00-\x08\x0a-\x1f\x7f\ue000-\ue00f]", text):
        raise ArgumentTypeError(f"{text!r} has a control character")
    return _PROTECTED + text.translate(_STANDS_FOR)


def restore(values: Any) -> Any:
    """The values of a repeatable flag that were protected, or those of another source."""
    if not isinstance(values, list | tuple):
        return values  # of a TOML file, and refused
    return tuple(
        value[1:].translate(_RESTORED) if isinstance(value, str) and value.startswith(_PROTECTED) else value
        for value in values
    )


def complete_help(
    parser: ArgumentParser,
    doc: str,
    fields: Mapping[str, FieldInfo],
    values: Mapping[str, Any],
    places: Mapping[str, str],
) -> None:
    """Writes the help texts. A command's own flags come first. `fields` are those of the settings by the name
    of their flag. `values` are set by the environment, a file or a preset; `places` says where."""
    formatter = parser._get_formatter()
    positional = [action for action in parser._actions if not action.option_strings]
    words = (formatter._format_args(action, str(action.metavar)) for action in positional)
    parser.usage = " ".join(("%(prog)s", "[FLAGS]", *words))
    parser.description = _wrapped(cleandoc(doc), width=formatter._width)
    parser._action_groups.sort(key=lambda group: group.title == LAST_GROUP)
    for action in parser._actions:
        if action.dest in fields:
            place = places.get(action.dest, "").replace("the preset", f"preset {values.get('preset')}")
            place = place if action.dest != "preset" else ""
            text = _help(action, fields[action.dest], values.get(action.dest, PydanticUndefined), place)
            action.help = text.replace("%", "%%")


def _wrapped(text: str, *, width: int) -> str:
    """The paragraphs of a text, of which those with a line that is too long are filled anew. Examples, which
    are indented, stay as they are."""
    paragraphs = [
        textwrap.fill(" ".join(part.split()), width, break_long_words=False, break_on_hyphens=False)
        if max(map(len, part.split("\n"))) > width and "\n " not in part
        else part
        for part in text.split("\n\n")
    ]
    return "\n\n".join(paragraphs)


def _help(action: Action, field: FieldInfo, value: Any, place: str) -> str:
    """What a setting is, and its default: the value that holds without the flag."""
    text = field.description or ""
    if value is PydanticUndefined:
        if field.is_required():
            return f"{text} (required)" if action.option_strings else text
        if "Default: " in text:
            return text
        value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value in ("", (), []) or (value is False and not place):
        return text
    if isinstance(value, bool):
        value = "on" if value else "off"
    shown = ", ".join(map(str, value)) if isinstance(value, tuple | list) else value
    return f"{text} (default: {mask_setting(str(shown))}{f', {place}' if place else ''})"


def explain_values(
    errors: Sequence[Mapping[str, Any]], fields: Iterable[str], places: Mapping[str, str]
) -> str:
    """The message of pydantic's errors, with the value of each and where it comes from."""
    details = [dict(error) for error in errors]
    for error in details:
        error["input"] = restore(error["input"])
        if error["type"] == "extra_forbidden":
            error["msg"] = f"no such setting{meant(str(error['loc'][0]), fields)}"
        elif error["type"] == "missing":
            del error["input"]
    quote = lambda value: repr(mask_setting(value))[:QUOTED_CHARS]  # noqa: E731
    return validation_message(details, quote=quote, places=places)


def explain_arguments(
    error: SettingsError, parser: ArgumentParser, variables: Callable[[str], Iterable[str]]
) -> str:
    """The message of an error about arguments, or about a list in the environment, which is read as JSON.
    `variables` are the names of a setting in the environment."""
    text = str(error).removeprefix("error parsing CLI: ")
    environment = {name.upper(): name for name in os.environ}
    match = re.search(r'field "(\w+)" from source', text)
    names = [environment[name] for name in variables(match[1]) if name in environment] if match else []
    if match and names:
        value = mask_setting(os.environ[names[0]])[:QUOTED_CHARS]
        return f'{match[1]}: not JSON such as ["a", "b"] (got {value!r}; {names[0]} in the environment)'
    flag = text.removeprefix("unrecognized arguments: ").partition(" ")[0].partition("=")[0]
    hint = meant(flag, parser._option_string_actions) if flag.startswith("--") else ""
    return f"{text[:QUOTED_CHARS]}{hint} ({parser.prog} --help)"


def meant(word: str, known: Iterable[str]) -> str:
    """What to add to the error about an unknown word: the one that was meant, if one is close."""
    close = difflib.get_close_matches(word[:QUOTED_CHARS], list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
