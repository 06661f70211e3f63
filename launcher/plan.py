"""The commands, settings and ports of a run's processes. This module starts nothing."""

import re
import shutil
import tomllib
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

from launcher import redis_server
from launcher.memory import CONTEXT_GIB, GIB, MOST_TOKENS, GpuShares, divide, needs_of
from launcher.runs import recorded_name
from launcher.services import SERVICES, ServiceSettings, check_names, resolve, with_effect
from launcher.settings import Overrides, UpSettings
from rookery import devices, hub
from rookery.engines.player import engine_player
from rookery.episodes import MOVE, TOOLS, environment, opponents_of, parse_mix, with_calls
from rookery.errors import InvalidInput, SetupError, Unavailable
from rookery.files import read_object
from rookery.masking import mask_setting
from rookery.model_defaults import model_defaults
from rookery.openings import books_of
from rookery.processes.child import ServiceCommand
from rookery.processes.ports import Ports
from rookery.prompt import LINES
from rookery.remote import is_url, shipped
from rookery.schemes import WITH_PROCESS_REWARDS, find_scheme
from rookery.settings import CONFIG_VARIABLE, read_preset
from rookery.streams import RunStreams
from rookery.tool_calls import can_call

if TYPE_CHECKING:
    from rookery.config.data import FeedSettings
    from rookery.config.inference import ServerSettings
    from rookery.config.reward import RewardSettings
    from rookery.config.rollouts import RolloutsSettings
    from rookery.config.trainer import TrainerSettings

HOST = "127.0.0.1"
_MODEL, _ONE_GPU = "the model", "one GPU"
_HALF = 0.45
"""The server's share of a GPU that serves and trains, if nothing is known about it or the model."""
_REWARD_MODEL_CARD = "reward_model.json"
"""The file by which a reward model is recognised."""

STAGES = (
    ("redis", "reward-model", "viewer"),
    ("feed", "archive", "reward", "trainer", "inference", "arena"),
    ("rollouts",),
)
"""A stage starts once the previous one is ready, but none waits for the viewer, whose address `rookery up`
prints first. Trainer and inference share a stage, because inference becomes ready only when the trainer has
published its first policy. The arena becomes ready when it has leased that policy, which would otherwise be
gone after a few steps."""


@dataclass(frozen=True)
class Plan:
    """The commands and ports of a run, ready to be started."""

    run_dir: Path
    run: str
    """The run's name in Redis: that of its first start, also if its folder was renamed or copied."""
    redis_url: str
    scheme: str
    ports: Mapping[str, Mapping[str, int]]
    commands: dict[str, ServiceCommand] = field(default_factory=dict)
    settings: dict[str, ServiceSettings] = field(default_factory=dict)
    """The settings of each service."""

    def settings_file(self, service: str) -> Path:
        """The TOML file that the service reads its settings from."""
        return self.run_dir / "settings" / f"{service}.toml"

    def write_settings(self) -> None:
        """Writes the settings of all services to their files, in place of those of an earlier start."""
        shutil.rmtree(self.run_dir / "settings", ignore_errors=True)
        for service, settings in self.settings.items():
            path = self.settings_file(service)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(settings.toml, encoding="utf-8")

    @property
    def stages(self) -> list[list[ServiceCommand]]:
        """Commands by stage, in the order in which they start."""
        return [[self.commands[name] for name in stage if name in self.commands] for stage in STAGES]

    @property
    def probe_urls(self) -> dict[str, str]:
        """The URL of each service's readiness probe."""
        return {name: c.probe_url for name, c in self.commands.items() if c.probe_url}

    def url(self, service: str) -> str:
        """The HTTP base URL of a service."""
        return f"{self.scheme}://{HOST}:{self.ports[service]['port']}"

    @property
    def trainer(self) -> "TrainerSettings":
        return cast("TrainerSettings", self.settings["trainer"].values)

    @property
    def server(self) -> "ServerSettings":
        return cast("ServerSettings", self.settings["inference"].values)

    @property
    def rollouts(self) -> "RolloutsSettings":
        return cast("RolloutsSettings", self.settings["rollouts"].values)

    @property
    def episode(self) -> str:
        """What is done with positions: a mix of episodes."""
        return cast("FeedSettings", self.settings["feed"].values).episode

    @property
    def serves_whole_models(self) -> bool:
        """Whether the inference server holds one version at a time, a whole model, instead of adapters."""
        return self.server.full_weights

    @property
    def reward_target(self) -> str:
        """The gRPC target of the reward service."""
        return f"dns:///{HOST}:{self.ports['reward']['grpc_port']}"


def make_plan(settings: UpSettings, ports: Ports) -> Plan:
    """Checks the settings as far as possible before anything starts, and chooses ports. Raises `SetupError`
    if a file is missing, a port is taken, Redis does not answer, or `--set` contradicts the run."""
    _resolve_model(settings.model)
    if not (settings.generated or is_url(settings.source) or shipped(settings.source).exists()):
        raise SetupError(f"no such file: {settings.source!r} (--source)")
    run_dir = (settings.runs_dir / settings.run).resolve()
    if (place := next(path for path in (run_dir, *run_dir.parents) if path.exists())).is_file():
        raise SetupError(f"{str(settings.runs_dir)!r} cannot be made: {str(place)!r} is a file (--runs-dir)")
    run, overrides = recorded_name(run_dir) or settings.run, Overrides(settings.set)
    _check_evaluation(settings)
    if settings.reward_model and not (settings.reward_model / _REWARD_MODEL_CARD).is_file():
        raise SetupError(
            f"{str(settings.reward_model)!r} is not a reward model: it has no {_REWARD_MODEL_CARD} "
            "(--reward-model)"
        )
    commands = {}
    redis_url = settings.redis_url
    if redis_url is None:
        folder = run_dir / "redis"
        redis_url = redis_server.redis_url(folder)
        argv = redis_server.redis_argv(folder)
        commands["redis"] = ServiceCommand("redis", argv, run_dir / "logs" / "redis.log", probe_url=redis_url)
    else:
        _check_redis(redis_url, run)
    left_out = {"redis"}
    left_out |= set() if settings.archive else {"archive"}
    left_out |= set() if settings.evaluate_every else {"arena"}
    left_out |= set() if _has_viewer(settings) else {"viewer"}
    left_out |= set() if settings.reward_model else {"reward-model"}
    names = [name for stage in STAGES for name in stage if name not in left_out]
    for name in left_out - {"redis"}:
        check_names(name, overrides.values(name))
    listening = [name for name in SERVICES if name not in left_out and name != "data"]
    chosen = {name: _ports(name, ports, overrides) for name in listening}
    draft = Plan(run_dir, run, redis_url, scheme=settings.access.scheme, ports=chosen, commands=commands)
    for name in names:
        draft.settings[name] = _resolve(name, settings, draft, overrides)
        commands[name] = _command(name, draft)
    _check_together(draft, evaluate_every=settings.evaluate_every)
    return draft


def default_lines(requested: UpSettings, plan: Plan) -> list[str]:
    """What the run takes from its model and its GPUs because nobody set it, and why; a line each."""
    lines, calls = dict[str, str](), list[str]()
    if requested.style is None and requested.task == "move":
        lines["style"] = f"prompt style {plan.rollouts.style} (--style)"
    if requested.max_tokens is None:
        lines["max_tokens"] = f"answers of up to {plan.rollouts.max_tokens} tokens (--max-tokens)"
    if plan.settings["trainer"].origins.get("lr") == _MODEL:
        lines["lr"] = f"learning rate {plan.trainer.lr} (--set trainer.lr)"
    if plan.settings["feed"].origins.get("episode") == _MODEL:
        has = "has" if "calls=template" in plan.episode else "has no"
        why = f"the model's chat template {has} calls of tools in JSON"
        calls.append(f"episodes {plan.episode} (--set feed.episode): {why}")
    if not lines:
        return calls + _gpu_lines(requested, plan)
    of_model = model_defaults(plan.trainer.model, style=requested.shown_style)
    # A run that goes on has its own.
    ours = {"style": plan.rollouts.style, "max_tokens": plan.rollouts.max_tokens}
    texts = [
        f"{text}: {of_model.reasons[name]}"
        for name, text in lines.items()
        if name in of_model.reasons and ours.get(name) in (None, getattr(of_model, name))
    ]
    return texts + calls + _gpu_lines(requested, plan)


def _gpu_lines(requested: UpSettings, plan: Plan) -> list[str]:
    """What the run takes from the GPUs of this machine because nobody set it; a line each."""
    server, lines = plan.settings["inference"], []
    if _leaves_the_cpu(requested):
        lines.append(
            f"the server uses GPU {plan.server.device}, and not the CPU as in preset {requested.preset}: the "
            "installed vLLM is a GPU build (--inference-device)"
        )
    trainer = plan.settings["trainer"]
    turns = {
        f"{service}.{name}={str(getattr(settings.values, name)).lower()}"
        for service, settings in (("inference", server), ("trainer", trainer))
        for name, origin in settings.origins.items()
        if origin == _ONE_GPU
    }
    if turns:
        lines.append(
            f"GPU {plan.server.device} serves and trains in turns: {', '.join(sorted(turns))} (--set)"
        )
    return lines


def _check_together(plan: Plan, *, evaluate_every: int) -> None:
    """Raises `SetupError` if services have settings that do not fit together."""
    trainer, server, rollouts = plan.trainer, plan.server, plan.rollouts
    reward = cast("RewardSettings", plan.settings["reward"].values)
    if (folder := Path(trainer.model)).is_dir():  # a model that is not downloaded yet is checked later
        trainer.check_model(folder)
    if server.max_model_len and rollouts.max_tokens >= server.max_model_len:
        raise SetupError(
            f"answers of {rollouts.max_tokens} tokens leave no room for a prompt in inference.max_model_len="
            f"{server.max_model_len} (--max-tokens, --set inference.max_model_len)"
        )
    _check_episodes(plan)
    if evaluate_every and server.full_weights:
        raise SetupError(
            f"--evaluate-every {evaluate_every}: versions can only be evaluated in a run whose server keeps "
            "several, and this one's has one whole model at a time; use `rookery evaluate` afterwards"
        )
    if trainer.sleep_inference and not server.sleep:
        raise SetupError("trainer.sleep_inference needs a server that may sleep: --set inference.sleep=true")
    if server.max_lora_rank < trainer.lora_rank and not server.full_weights:
        raise SetupError(
            f"the trainer's adapters have rank {trainer.lora_rank}, and the server accepts "
            f"{server.max_lora_rank} at most (--set trainer.lora_rank, inference.max_lora_rank)"
        )
    # By its text: it may name users' functions, which are not loaded here.
    if "reward-model" in plan.settings and not re.search(r"(?:^|[+*])\s*model\s*(?:\+|$)", reward.scheme):
        raise SetupError(
            f"scheme {reward.scheme!r} does not ask the reward model (--reward-model): --set "
            "reward.scheme=model, or a sum such as delta+0.5*model"
        )
    uses = find_scheme(reward.scheme).uses if not reward.schemes else WITH_PROCESS_REWARDS
    if trainer.process_rewards and uses.isdisjoint(WITH_PROCESS_REWARDS):
        raise SetupError(
            "trainer.process_rewards needs a scheme with candidates, values, truth or influence, "
            f"not {reward.scheme!r}: --set reward.scheme=delta+0.2*candidates"
        )


def _check_episodes(plan: Plan) -> None:
    """Raises `SetupError` if episodes cannot be played with the run's other settings."""
    trainer, rollouts = plan.trainer, plan.rollouts
    _check_opponents(plan)
    kinds = [spec for _, spec in parse_mix(plan.episode)]
    both = next((spec for spec in kinds if getattr(environment(spec), "colours", "") == "both"), "")
    if both and rollouts.group_size < 4 and trainer.baseline in ("group-mean", "leave-one-out"):
        raise SetupError(
            f"feed.episode {both[:80]!r}: half of a group's games are of each colour, and baseline="
            f"{trainer.baseline} compares those of one: --group-size {rollouts.group_size} leaves too few, "
            "4 are needed"
        )
    if rollouts.style in LINES and any(
        getattr(environment(spec), "calls", "") == "template" for spec in kinds
    ):
        raise SetupError(
            f"feed.episode {plan.episode[:80]!r}: prompts of style {rollouts.style} have no chat template: "
            "calls=tags"
        )


def _check_opponents(plan: Plan) -> None:
    """Raises `SetupError` if an opponent of games cannot play, or openings cannot be read."""
    try:
        books_of(plan.episode)
    except InvalidInput as error:
        raise SetupError(f"feed.episode: {error}") from error
    for opponent in opponents_of(plan.episode):
        if opponent.kind == "policy" and plan.server.full_weights:
            raise SetupError(
                f"feed.episode {plan.episode[:80]!r}: opponent=policy needs adapters, and this run's server "
                "keeps one whole model at a time"
            )
        if opponent.kind != "policy":
            try:
                engine_player(opponent)
            except SetupError as error:
                raise SetupError(f"feed.episode: {error}") from error


def _has_viewer(settings: UpSettings) -> bool:
    """Whether the run serves the viewer. Raises `SetupError` if it is asked for and not installed."""
    installed = find_spec("duckdb") is not None
    if settings.view and not installed:
        raise SetupError("--view: the viewer needs duckdb: pip install 'rookery[viewer]'")
    return installed and settings.view is not False


def _check_redis(url: str, run: str) -> None:
    try:
        with closing(RunStreams(url, run)) as streams:
            streams.redis.ping(once=True)
    except Unavailable as error:
        raise SetupError(
            f"no Redis at {mask_setting(url)!r}: {error} (--redis-url; without it one is started)"
        ) from error


def _resolve_model(name: str) -> str:
    """The model's directory, or `name` if it is an id of the Hub that is not in the cache. The path is
    absolute, because vLLM would read a relative one as an id. Raises as `hub.local_model` does."""
    folder = hub.local_model(name)
    return str(folder.resolve() if folder else hub.cached(name) or name)


def _check_evaluation(settings: UpSettings) -> None:
    """Raises `SetupError` if versions of this run cannot be evaluated while it trains."""
    reason = ""
    if settings.task != "move":
        reason = f"of --task move, and this one is of --task {settings.task}"
    elif settings.generated:
        reason = "of games, of which some are held out, and this one is of --source generated"
    if settings.evaluate_every and reason:
        raise SetupError(
            f"--evaluate-every {settings.evaluate_every}: versions can only be evaluated in a run {reason}; "
            "use `rookery evaluate` afterwards"
        )


def _command(name: str, plan: Plan) -> ServiceCommand:
    """The command that starts one service, which reads its settings from a file."""
    service = SERVICES[name]
    return ServiceCommand(
        name,
        service.argv,
        plan.run_dir / "logs" / f"{name}.log",
        probe_url=f"{plan.url(name)}/readyz",
        env={**plan.settings[name].child_environment(), CONFIG_VARIABLE: str(plan.settings_file(name))},
        addresses=tuple((HOST, port) for port in plan.ports[name].values()),
    )


def _resolve(name: str, settings: UpSettings, plan: Plan, overrides: Overrides) -> ServiceSettings:
    """The settings of one service. Raises `SetupError` if one is wrong, or `--set` has one that the run
    decides."""
    decided = _decided_settings(name, settings, plan)
    kept = Overrides(settings._kept).values(name)
    assigned = with_effect(name, decided, overrides.values(name), kept=kept.keys())
    defaults: dict[str, tuple[object, str]] = {}
    if name == "inference" and not decided.get("full_weights"):
        rank = plan.trainer.lora_rank
        defaults = {"max_lora_rank": (served_rank(rank), "the trainer's rank")} if rank else {}
    if name == "inference":
        defaults |= _shared_server(settings, plan)
    if name == "reward-model":
        defaults = {"device": (_device(name, settings), "the GPUs")}
    if name == "trainer":
        shared, own = _shared_trainer(settings, decided, assigned)
        decided |= own
        plan.settings[name] = resolve(name, decided, assigned, defaults=shared)
        with suppress(SetupError):  # a model that is not here: its service says so
            of_model = model_defaults(settings.model, style=settings.shown_style)
            lr = of_model.lr if plan.trainer.lora_rank else of_model.whole_lr
            defaults = {"lr": (lr, _MODEL)} if lr else {}
        defaults |= shared
    resolved = resolve(name, decided, assigned, defaults=defaults)
    if name == "feed":
        resolved = _with_model_calls(resolved, settings, plan)
    free = {key: "a free port" for key in plan.ports[name] if overrides.port(name, key)[0] is None}
    return replace(resolved, origins={**resolved.origins, **free})


def _with_model_calls(feed: ServiceSettings, settings: UpSettings, plan: Plan) -> ServiceSettings:
    """The feed's settings with the model's way to call tools, where its `episode` names none. A run that
    goes on keeps its way."""
    mix = cast("FeedSettings", feed.values).episode
    if with_calls(mix, "tags") == mix or settings.shown_style in LINES:
        return feed
    before, file = "", plan.settings_file("feed")
    if file.exists():
        before = str(tomllib.loads(file.read_text()).get("feed", {}).get("episode", ""))
    if TOOLS in before:
        calls, origin = "template" if "calls=template" in before else "tags", f"run {plan.run}"
    else:
        try:
            template = hub.chat_template(hub.text_folder(settings.model, download=False))
        except SetupError:  # a model that is not here: its service says so
            return feed
        calls, origin = "template" if can_call(template) else "tags", _MODEL
    values = feed.values.model_copy(update={"episode": with_calls(mix, calls)})
    return replace(feed, values=values, origins={**feed.origins, "episode": origin})


def _decided_settings(name: str, settings: UpSettings, plan: Plan) -> dict[str, object]:
    """The settings of a service that the run decides. `--set` cannot change them."""
    model = _resolve_model(settings.model)
    listening: dict[str, object] = {"host": HOST, **plan.ports[name], **settings.access_values}
    if settings.preset and name in read_preset(settings.preset):
        listening["preset"] = settings.preset
    if name in ("reward", "reward-model", "viewer"):
        return {**listening, **_runless_settings(name, settings, plan)}
    member: dict[str, object] = {**listening, "run": plan.run, "redis_url": plan.redis_url}
    if name == "feed":
        return {
            **member,
            "max_positions": settings.max_positions,
            "sources": settings.feed_source,
            "seed": settings.seed,
            "task": settings.task,
        }
    if name == "archive":
        return {**member, "out": plan.run_dir / "archive"}
    if name == "inference":
        # vLLM has no LoRA for GPT-2. The services report a model that is missing or invalid.
        whole = not plan.trainer.lora_rank or hub.is_gpt2(Path(model))
        # A version that is evaluated; each that plays, and the one before it in games that go on.
        every = {o.every for o in opponents_of(plan.episode) if o.kind == "policy"}
        leases = bool(settings.evaluate_every) + 2 * len(every)
        return {
            **member,
            **({"full_weights": True} if whole else {}),
            **_given(
                style=settings.shown_style, answer_tokens=settings.max_tokens, thinking=settings.thinking
            ),
            **({"leases": leases} if leases else {}),
            "model": model,
            "adapter_root": plan.run_dir / "adapters",
            "device": _device(name, settings),
        }
    if name == "trainer":
        return {
            **member,
            **_given(max_steps=settings.steps, from_version=settings.from_version),
            "model": model,
            "run_dir": plan.run_dir,
            "inference_urls": plan.url("inference"),
            "batch_groups": settings.batch_groups,
            # One version is being trained and one published, and games that go on are a batch that does not
            # count, so a group that was admitted is never stale.
            "max_staleness": settings.staleness + (2 if plan.episode == MOVE else 3),
            "device": _device(name, settings),
            "seed": settings.seed,
        }
    return {**member, **_policy_client_settings(name, settings, plan)}


def served_rank(rank: int) -> int:
    """The smallest rank of vLLM's that holds an adapter of `rank`; 256, its highest, if none does."""
    return min((r for r in (8, 16, 32, 64, 128, 256) if r >= rank), default=256)


def _runless_settings(name: str, settings: UpSettings, plan: Plan) -> dict[str, object]:
    """The settings of the services that do not belong to one run: reward, reward model and viewer."""
    if name == "reward-model":
        return {"model": (settings.reward_model or Path()).resolve()}
    if name == "viewer":
        return {"runs_dir": settings.runs_dir.resolve()}
    engines = {"engines": settings.engines} if settings.engines else {}
    model_url = {"model_url": plan.url("reward-model")} if settings.reward_model else {}
    return {"nodes": settings.nodes, **engines, **model_url}


def _policy_client_settings(name: str, settings: UpSettings, plan: Plan) -> dict[str, object]:
    """The settings of the two services that ask the policy: rollouts and arena."""
    common = {
        "reward_target": plan.reward_target,
        **_given(style=settings.shown_style, max_tokens=settings.max_tokens),
        "seed": settings.seed,
    }
    if name == "arena":
        return {
            **common,
            **_given(thinking=settings.thinking),
            "run_dir": plan.run_dir,
            "every": settings.evaluate_every,
            "count": settings.evaluate_positions,
            "positions": plan.run_dir / "heldout.jsonl",
            "inference_url": plan.url("inference"),
        }
    return {
        **common,
        "group_size": settings.group_size,
        "batch_groups": settings.batch_groups,
        "staleness": settings.staleness,
        "inference_urls": plan.url("inference"),
    }


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _device(name: str, settings: UpSettings) -> str:
    serving, trainers = settings.inference_device.split(","), settings.trainer_device.split(",")
    if name == "inference":
        serving = ["auto"] if _leaves_the_cpu(settings) else serving
        return ",".join(
            devices.place(device, preferred=0, package="vllm", taken=trainers) for device in serving
        )
    if name == "reward-model" and "cpu" in trainers:
        return "cpu"
    if name == "reward-model":  # a GPU of its own, else the trainer's
        taken = _device("inference", settings).split(",")
        return devices.place("auto", preferred=2, package="torch", taken=taken)
    return ",".join(devices.place(device, preferred=1, package="torch", taken=serving) for device in trainers)


def _leaves_the_cpu(settings: UpSettings) -> bool:
    """Whether the preset has the server on the CPU, which the installed vLLM cannot use, beside a GPU."""
    if settings.inference_device != "cpu" or not settings.preset:
        return False
    in_preset = read_preset(settings.preset).get("up", {}).get("inference_device") == "cpu"
    gpu_build = find_spec("vllm") is not None and not devices.is_cpu_build("vllm")
    return in_preset and gpu_build and bool(devices.usable_gpus())


def _shared_gpu(settings: UpSettings) -> str | None:
    """The GPU on which the run serves and trains; None if they have different devices, or a CPU. Raises
    `SetupError` if the trainer has several, with the server's among them."""
    served, trained = _device("inference", settings), _device("trainer", settings)
    if served in devices.CPU or trained.split(",")[0] in devices.CPU:
        return None
    if not set(map(devices.entry, served.split(","))) & set(map(devices.entry, trained.split(","))):
        return None
    if "," in trained or "," in served:
        raise SetupError(
            f"GPU {served} serves, and is among those that train: --inference-device {served}, "
            f"--trainer-device {trained}"
        )
    return served


def _shared_trainer(
    settings: UpSettings, decided: Mapping[str, object], assigned: Mapping[str, str]
) -> tuple[dict[str, tuple[object, str]], dict[str, object]]:
    """The defaults of a trainer that shares the server's GPU, and what replaces an `auto` of its preset: that
    could not measure beside the server."""
    if not (gpu := _shared_gpu(settings)):
        return {}, {}
    alone = resolve("trainer", decided, assigned)
    trainer, origins = cast("TrainerSettings", alone.values), alone.origins
    shares = _sharing(gpu, settings, trainer)
    in_preset = not trainer.micro_batch_tokens and origins.get("micro_batch_tokens") == "preset"
    tokens: dict[str, object] = {"micro_batch_tokens": shares.tokens}
    defaults = {"sleep_inference": True} if in_preset else {"sleep_inference": True, **tokens}
    return {name: (value, _ONE_GPU) for name, value in defaults.items()}, tokens if in_preset else {}


def _shared_server(settings: UpSettings, plan: Plan) -> dict[str, tuple[object, str]]:
    """The defaults of a server that shares its GPU with the trainer, whose settings the plan has."""
    if not (gpu := _shared_gpu(settings)):
        return {}
    share = _sharing(gpu, settings, plan.trainer).server
    return {"sleep": (plan.trainer.sleep_inference, _ONE_GPU), "gpu_memory": (share, _ONE_GPU)}


def _sharing(gpu: str, settings: UpSettings, trainer: "TrainerSettings") -> GpuShares:
    """How the server and the trainer divide the GPU. Half and half if its size or the model is not known."""
    gib, capability = devices.memory_gib(gpu), devices.capability(gpu)
    in_bf16 = trainer.precision == "bf16" or (
        trainer.precision == "auto" and capability is not None and capability >= devices.BF16_CAPABILITY
    )
    needs = None
    with suppress(SetupError):  # a model that is not here, or of another family
        needs = needs_of(read_object(hub.text_folder(settings.model) / hub.CONFIG_FILE))
    if gib is None or needs is None:
        return GpuShares(_HALF, MOST_TOKENS)
    others = 0.0
    if settings.reward_model and _device("reward-model", settings) == gpu:
        files = settings.reward_model.glob("*.safetensors")
        others = CONTEXT_GIB + sum(path.stat().st_size for path in files) / GIB
    return divide(needs, gib, trainer, in_bf16=in_bf16, others_gib=others)


def _ports(service: str, ports: Ports, overrides: Overrides) -> dict[str, int]:
    chosen: dict[str, int] = {}
    for key, default in SERVICES[service].ports.items():
        port, setting = overrides.port(service, key)
        chosen[key] = ports.choose(default, asked=port, setting=setting)
    return chosen
