"""Settings that count only where others have certain values.

A setting that a user gives and nothing reads is a misunderstanding, and refused. One that a preset or an
objective's own defaults bring is no more than a default, and not taken; nor is what a file says that would
hold without it, for it may be a file that --dry-run has printed whole. Arguments in code are left alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import ModelWrapValidatorHandler, model_validator
from pydantic_settings import SettingsConfigDict

from rookery.origins import last_origins
from rookery.settings import Settings


@dataclass(frozen=True, slots=True)
class When:
    """`setting` is one of `among`; without these, it is anything but `but`."""

    setting: str
    among: tuple[Any, ...] = ()
    but: tuple[Any, ...] = ()

    def holds(self, settings: Settings) -> bool:
        """Whether it is so."""
        value = getattr(settings, self.setting)
        return value in self.among if self.among else value not in self.but

    def __str__(self) -> str:
        """As flags, in the words of an error."""
        if not self.among:
            return " ".join(
                [_flag(self.setting), *(f"other than {value}" for value in self.but if value is not None)]
            )
        if self.among == (True,):
            return _flag(self.setting)
        *most, last = map(str, self.among)
        return f"{_flag(self.setting)} {', '.join(most)}{' or ' if most else ''}{last}"


ADAPTER = {name: When("lora_rank", but=(0,)) for name in ("lora_alpha", "lora_targets")}
"""Settings of an adapter."""


class ScopedSettings(Settings):
    """Settings with a table of what is read when. Numbers are finite: what learns from infinity is NaN."""

    model_config = SettingsConfigDict(allow_inf_nan=False)

    reading: ClassVar[Mapping[str, When]] = {}
    """By setting; one that is not here is always read. What `When` names may itself be here."""

    moved: ClassVar[frozenset[str]] = frozenset()
    """Settings whose defaults `own_defaults` may give."""

    @classmethod
    def own_defaults(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Defaults that follow from other values, as yet unchecked."""
        del values
        return {}

    @classmethod
    def of_file(cls, values: Mapping[str, Any], *, stronger: Mapping[str, Any]) -> dict[str, Any]:
        """Without what presets and defaults say as well, where other settings decide on it."""
        name = stronger.get("preset", values.get("preset"))
        preset = cls.of_preset(cls.preset_values(name), stronger=values) if name else {}
        fields = {name: cls.model_fields[name].default for name in cls.reading.keys() | cls.moved}
        weaker = fields | dict(cls.own_defaults({**preset, **values})) | preset
        return {name: value for name, value in values.items() if name not in fields or value != weaker[name]}

    def unread(self) -> dict[str, str]:
        """What nothing reads, with the settings at fault: `--objective grpo`."""
        return {
            name: " and ".join(_said(when.setting, getattr(self, when.setting)) for when in unmet)
            for name in self.reading
            if (unmet := list(self._unmet(name)))
        }

    def _unmet(self, name: str) -> Iterator[When]:
        """What would have to be otherwise for a setting to be read, from the root on."""
        when = self.reading.get(name)
        if when is not None:
            yield from self._unmet(when.setting)
            if not when.holds(self):
                yield when

    @model_validator(mode="wrap")
    @classmethod
    def _read(cls, values: dict[str, Any], handler: ModelWrapValidatorHandler[Self]) -> Self:
        values = {**cls.own_defaults(values), **values}
        resolved, origins = handler(values), last_origins()
        unread = [name for name in resolved.unread() if origins.get(name) != "argument"]
        if given := [name for name in unread if origins.get(name, "preset") != "preset"]:
            raise ValueError("; ".join(map(resolved._complaint, given)))
        return handler({name: value for name, value in values.items() if name not in unread})

    def _complaint(self, name: str) -> str:
        told = f"{_said(name, getattr(self, name))} ({last_origins()[name]})"
        needed = " and ".join(map(str, self._unmet(name)))
        return f"{told} is not read with {self.unread()[name]}, but with {needed}"


def _said(name: str, value: Any) -> str:
    """As on a command line."""
    if isinstance(value, bool):
        return _flag(name if value else f"no_{name}")
    return f"no {_flag(name)}" if value is None else f"{_flag(name)} {value}"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
