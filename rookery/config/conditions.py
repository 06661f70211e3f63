"""What the settings of several commands share: conditions, types, and groups of settings.

Some settings have an effect only if other settings have certain values. A setting that a user gives and that
has no effect is an error. A preset's value, or an objective's default, is ignored if it has no effect. So is
a value in a TOML file that equals the default or the preset's value, because the file may be complete output
of --dry-run. Arguments in code are not checked.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import (
    BeforeValidator,
    ModelWrapValidatorHandler,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from rookery.origins import last_origins
from rookery.settings import Settings


@dataclass(frozen=True, slots=True)
class When:
    """The condition that `setting` is one of `among` or, if `among` is empty, none of `but`."""

    setting: str
    among: tuple[Any, ...] = ()
    but: tuple[Any, ...] = ()

    def holds(self, settings: Settings) -> bool:
        value = getattr(settings, self.setting)
        return value in self.among if self.among else value not in self.but

    def __str__(self) -> str:
        """The condition, for error messages."""
        if self.but == (None,):
            return self.setting
        *most, last = (_text(value) for value in self.among or self.but if value is not None)
        values = f"{', '.join(most)}{' or ' if most else ''}{last}"
        return f"{self.setting}{'=' if self.among else ' other than '}{values}"


class ConditionalSettings(Settings, allow_inf_nan=False):
    """Settings with a table of the conditions under which they have an effect. Numbers must be finite."""

    conditions: ClassVar[Mapping[str, When]] = {}
    """The condition of each setting that does not always have an effect. Its setting may have a condition."""

    dependent: ClassVar[frozenset[str]] = frozenset()
    """Settings whose defaults `dependent_defaults` may change."""

    @classmethod
    def of_file(cls, values: Mapping[str, Any], *, stronger: Mapping[str, Any]) -> dict[str, Any]:
        """Leaves out conditional settings whose value equals that of the preset or the defaults."""
        name = stronger.get("preset", values.get("preset"))
        preset = cls.of_preset(cls.preset_values(name), stronger=values) if name else {}
        fields = {name: cls.model_fields[name].default for name in cls.conditions.keys() | cls.dependent}
        weaker = fields | dict(cls.dependent_defaults({**preset, **values})) | preset
        return {name: value for name, value in values.items() if name not in fields or value != weaker[name]}

    def unread(self) -> dict[str, str]:
        """Settings without effect, with the settings that cause it, such as `objective=grpo`."""
        return {
            name: " and ".join(_assignment(when.setting, getattr(self, when.setting)) for when in unmet)
            for name in self.conditions
            if (unmet := list(self._unmet(name)))
        }

    def _unmet(self, name: str) -> Iterator[When]:
        """The conditions of a setting that are not met, from the root of the chain on."""
        when = self.conditions.get(name)
        if when is not None:
            yield from self._unmet(when.setting)
            if not when.holds(self):
                yield when

    @model_validator(mode="wrap")
    @classmethod
    def _check_conditions(cls, values: dict[str, Any], handler: ModelWrapValidatorHandler[Self]) -> Self:
        values = {**cls.dependent_defaults(values), **values}
        resolved, origins = handler(values), last_origins()
        unread = [name for name in resolved.unread() if origins.get(name) != "argument"]
        if ignored := [name for name in unread if origins.get(name, "preset") != "preset"]:
            raise ValueError("; ".join(map(resolved._no_effect_message, ignored)))
        return handler({name: value for name, value in values.items() if name not in unread})

    def _no_effect_message(self, name: str) -> str:
        needed = " and ".join(map(str, self._unmet(name)))
        setting = _assignment(name, getattr(self, name))
        return f"{setting} has no effect with {self.unread()[name]}, only with {needed}"


def _assignment(name: str, value: Any) -> str:
    return f"no {name}" if value is None else f"{name}={_text(value)}"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def auto_is_0(value: object) -> object:
    """Returns 0 for `auto`, and other values as they are."""
    return 0 if value == "auto" else value


AdamBits = Annotated[Literal[32, 8], BeforeValidator(int)]
"""Bits of Adam's moments. The validator converts the text of an environment variable."""

BaseBits = Annotated[Literal[8, 4], BeforeValidator(int)]
"""Bits of a weight of the frozen base's linear layers."""

Precision: TypeAlias = Literal["auto", "fp32", "bf16"]

LrSchedule: TypeAlias = Literal["constant", "linear", "cosine"]
"""The learning rate's schedule after the warm-up."""

ADAPTER_CONDITIONS = {name: When("lora_rank", but=(0,)) for name in ("lora_alpha", "lora_targets")}
"""Conditions of the settings of an adapter."""


class OptimiserSettings(Settings, help_group="optimiser"):
    """AdamW and its learning rate."""

    lr: PositiveFloat = 1e-3
    """Learning rate after the warm-up."""
    warmup_steps: NonNegativeInt = 5
    """Steps of linear warm-up."""
    max_grad_norm: PositiveFloat = 1.0
    """Gradients are clipped to this norm."""
    adam_bits: AdamBits = 32
    """Bits of Adam's moments. 8 needs bitsandbytes and takes a quarter of their memory."""


class AdapterSettings(Settings, help_group="adapter"):
    """The LoRA adapter, or the training of all weights."""

    lora_rank: NonNegativeInt = 0
    """Train a LoRA adapter of this rank. 0 trains all weights."""
    lora_alpha: PositiveInt = 32
    """The adapter is scaled by alpha / rank."""
    lora_targets: str = "all-linear"
    """Linear layers that get an adapter, separated by commas; never the head, the embeddings or a mixture's
    experts."""


class MemorySettings(Settings, help_group="memory"):
    """How a step is split, and what is kept in memory."""

    micro_batch_tokens: Annotated[NonNegativeInt, BeforeValidator(auto_is_0)] = 0
    """Tokens per forward pass, with padding. Smaller values need more passes; the gradient is the same up to
    rounding. `auto`, or 0, measures how many take half of the free memory, or 85% of a GPU's."""
    row_tokens: NonNegativeInt = 0
    """Pack the examples of a step into rows of this many tokens, without mutual attention. 0: one per row."""
    gradient_checkpointing: bool = False
    """Recompute activations instead of keeping them."""
    precision: Precision = "auto"
    """Of the matrix products and of a frozen base's weights: bf16, fp32, or auto: bf16 on a GPU of compute
    capability 8.0 or more or a CPU with AVX512-BF16, otherwise fp32. Trained weights, losses and Adam's
    moments are in fp32."""
