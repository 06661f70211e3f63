"""Serves the players `model:DIR_OR_HUB_ID` and `run:RUN[@VERSION]` on this machine while needed.

A player is named by its spec: a kind, and options after commas. Only these two kinds are read here. They
become `http://...#MODEL` with the same options. All LoRA versions of one base model share a server with the
base model itself. A version with all weights needs a server of its own.
"""

import asyncio
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pydantic_settings import CliPositionalArg

from launcher.plan import HOST, served_rank
from launcher.services import SERVICES, as_flags
from launcher.settings import SETTINGS_FILE
from launcher.supervisor import running
from rookery.access import AccessSettings
from rookery.clients import InferenceClient
from rookery.config.inference import ServerSettings
from rookery.devices import CPU, Device, place
from rookery.errors import QUOTED_CHARS, SetupError
from rookery.files import expanded, read_object
from rookery.hub import DIGEST, model_folder, text_digest, weights_digest
from rookery.model_defaults import model_defaults
from rookery.processes.child import ServiceCommand
from rookery.processes.ports import Ports
from rookery.remote import FolderPath, run_version
from rookery.settings import Settings, Specs
from rookery.trace import Adapter, PolicyVersion, policy_name

_MODEL, _RUN = "model:", "run:"
_ADAPTER = "adapter_config.json"
_VERSION = re.compile(r"policy-v(\d{6,})")

_FIRST_PORT, _GPU_SHARE = 8100, 0.9
_RELOAD_S = 300.0


class PlayersSettings(Settings, env_prefix="PLAYERS_"):
    """Serve models and versions of runs as players. Prints the address of each, and ends with its input."""

    specs: CliPositionalArg[Specs]
    """Players: model:DIR_OR_HUB_ID or run:RUN[@VERSION]. Both may be at a URL: model:s3://bucket/sft."""
    device: Device = "auto"
    """cpu, the index of a GPU or its id (GPU-..., MIG-...), or auto."""
    logs: FolderPath | None = None
    """Folder for the servers' logs. Default: a temporary folder."""


def serve_until_eof(settings: PlayersSettings) -> int:
    """Serves the players and prints their specs, one a line, until the standard input ends. If it ends while
    a model loads, the servers are stopped at once. Raises `SetupError` before it reads if there is no such
    model, run or version, or two of them have the same name."""
    batches(settings.specs)
    waits = any(map(_is_served, settings.specs))
    ended = False

    def read() -> None:
        nonlocal ended
        while os.read(sys.stdin.fileno(), 65536):
            pass
        ended = True
        if waits:
            signal.pthread_kill(main, signal.SIGINT)

    main, reader = threading.get_ident(), threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        with serve(settings.specs, device=settings.device, logs=settings.logs) as resolved:
            waits = False
            sys.stdout.write("".join(f"{spec}\n" for spec in resolved))
            sys.stdout.flush()
            reader.join()
    except KeyboardInterrupt:
        if not ended:
            raise
    return 0


def batches(specs: Sequence[str]) -> list[list[str]]:
    """The specs in groups, each of which needs one server at most. Those without a server come first.

    Serve the groups one after the other if there is no memory for several servers at a time. Raises
    `SetupError` if there is no such model, run or version, or two of them have the same name.
    """
    serverless = [spec for spec in specs if not _is_served(spec)]
    groups = _groups(specs)
    specs_by_name: dict[str, str] = {}
    for player in chain.from_iterable(groups):
        name = player.options["name"]
        if namesake := specs_by_name.get(name):
            raise SetupError(
                f"players {namesake!r} and {player.spec!r} have the same name, {name!r}: add ,name=... to one"
            )
        specs_by_name[name] = player.spec
    served = [[player.spec for player in group] for group in groups]
    return [serverless, *served] if serverless else served


def planned(specs: Sequence[str]) -> list[str]:
    """The specs as `serve` gives them, for servers that are not started."""
    players = {player.spec: player for group in _groups(specs) for player in group}
    url = f"http://{HOST}:{_FIRST_PORT}"
    return [players[spec].at(url, "model", "cpu") if spec in players else spec for spec in specs]


def training_folders(specs: Sequence[str]) -> dict[str, Path]:
    """The folder of each run or model among the specs, by the player's name."""
    return {
        player.options["name"]: player.version.folder.parents[1] if player.version else player.folder
        for group in _groups(specs)
        for player in group
    }


@contextmanager
def serve(specs: Sequence[str], *, device: str = "auto", logs: Path | None = None) -> Iterator[list[str]]:
    """The specs in the same order, those of models and runs replaced by that of their endpoint.

    All servers run at the same time, and are stopped at the end of the `with` block. `auto` gives each server
    a GPU of its own while there are enough. Raises `SetupError` if there is no such model, run or version, or
    a server does not start; `RookeryError` if a server refuses a version.
    """
    groups = _groups(specs)
    if not groups:
        yield list(specs)
        return
    folder = logs or Path(tempfile.mkdtemp(prefix="rookery-"))
    devices = [place(device, preferred=number, package="vllm") for number in range(len(groups))]
    resolved: dict[str, str] = {}
    with ExitStack() as exits:
        ports = exits.enter_context(Ports(HOST))
        for number, group in enumerate(groups):
            port, share = ports.choose(_FIRST_PORT + number), _GPU_SHARE / devices.count(devices[number])
            log = folder / f"inference-{number}.log"
            command = _command(group, port=port, device=devices[number], share=share, log=log)
            exits.enter_context(running(command))
            url = f"{AccessSettings().access.scheme}://{HOST}:{port}"
            resolved |= asyncio.run(_load(group, url, devices[number]))
        yield [resolved.get(spec, spec) for spec in specs]


def read_endpoint(spec: str) -> tuple[str, str, dict[str, str]]:
    """The URL, the model and the options of a player that `serve` has resolved.

    >>> read_endpoint("http://127.0.0.1:8100#policy-v000003,style=fen,max-tokens=32")
    ('http://127.0.0.1:8100', 'policy-v000003', {'style': 'fen', 'max-tokens': '32'})
    """
    place, *options = spec.split(",")
    url, _, model = place.partition("#")
    return url, model, dict(option.split("=", 1) for option in options)


@dataclass(frozen=True, slots=True)
class _Version:
    """A committed version of a run. `base` is the base model, by name and content."""

    folder: Path
    number: int
    sha256: str
    base: str

    @property
    def whole(self) -> bool:
        return not (self.folder / _ADAPTER).is_file()

    @property
    def rank(self) -> int:
        config = read_object(self.folder / _ADAPTER)
        return max(int(config["r"]), *map(int, (config.get("rank_pattern") or {}).values()), 0)


@dataclass(frozen=True, slots=True)
class _Player:
    """What a spec asks for: a version of a run, or the model in `folder` if `version` is None."""

    spec: str
    folder: Path
    version: _Version | None
    options: Mapping[str, str]

    def at(self, url: str, model: str, device: str) -> str:
        """The spec of the player at an endpoint that serves it as `model` on a CPU or GPU."""
        # The server rounds differently on them.
        source = f"{self.options['source']}:{'cpu' if device in CPU else 'gpu'}{_server_settings(self)}"
        options = {**self.options, "source": source, **AccessSettings().access.player_options}
        return ",".join((f"{url}#{model}", *(f"{key}={value}" for key, value in options.items())))


def _server_settings(player: _Player) -> str:
    """What the environment and the TOML file set for the server, if it changes the player's answers."""
    settings = ServerSettings.parse([], prog="rookery serve inference")
    values = settings.model_dump(include={"thinking", "sampling", "max_model_len"}, exclude_defaults=True)
    if "thinking" in player.options:  # it is part of each request
        values.pop("thinking", None)
    return "".join(f":{name}={value}" for name, value in sorted(values.items()))


def _is_served(spec: str) -> bool:
    return spec.startswith((_MODEL, _RUN))


def _read(spec: str) -> _Player:
    try:
        head, *parts = spec.split(",")
        options = {key: value for key, _, value in (part.partition("=") for part in parts)}
        kind, _, place = head.partition(":")
        place = expanded(place)
        if (thinking := options.get("thinking", "on")) not in ("on", "off"):
            raise SetupError(f"thinking={thinking}: choose on or off")
        if f"{kind}:" == _MODEL:
            folder = model_folder(place)
            digest = (weights_digest(folder) or "").removeprefix(DIGEST)[:12]
            path = Path(place.rstrip("/"))
            output_name = path.parent.name if path.name == "model" else ""  # `rookery sft` writes OUT/model
            defaults = {
                "name": output_name or path.name,
                "source": f"{head}:{digest}:{text_digest(folder)[:12]}",
            }
            of_model = model_defaults(place, style=options.get("style"))
            defaults["max-tokens"] = str(of_model.max_tokens)
            if of_model.style:
                defaults["style"] = of_model.style
            return _Player(spec, folder.resolve(), None, {**defaults, **options})
        return _read_run(spec, place, options)
    except SetupError as error:
        raise SetupError(f"player {spec[:QUOTED_CHARS]!r}: {error}") from error


def _read_run(spec: str, place: str, options: Mapping[str, str]) -> _Player:
    run, number = run_version(place)
    version = _version(run, number)
    folder = model_folder(version.base.partition(f"@{DIGEST}")[0])
    defaults = {
        "name": f"{run.name}@{version.number}",
        "source": f"{_RUN}{run}@{version.number}:{version.sha256[:12]}:{text_digest(folder)[:12]}",
    }
    if (run / SETTINGS_FILE).is_file():
        settings = read_object(run / SETTINGS_FILE)
        assignments = dict(text.split("=", 1) for text in settings.get("set") or ())
        setting = settings.get("thinking")
        trained = str(assignments.get("inference.thinking") if setting is None else setting).lower()
        style = "rookworld" if settings.get("task") == "rookworld" else settings.get("style")
        thinking = {"true": "on", "false": "off"}.get(trained)
        recorded = {"style": style, "max-tokens": settings.get("max_tokens"), "thinking": thinking}
        defaults |= {key: str(value) for key, value in recorded.items() if value}
    return _Player(spec, folder.resolve(), version, {**defaults, **options})


def _version(run: Path, number: int | None) -> _Version:
    """Version `number` of the run, or the newest."""
    matches = ((_VERSION.fullmatch(path.name), path) for path in (run / "adapters").glob("policy-v*"))
    folders = {int(match[1]): path for match, path in matches if match}
    if not folders:
        raise SetupError(f"{str(run)!r} has no version: there is nothing in {str(run / 'adapters')!r}")
    chosen = max(folders) if number is None else number
    if chosen not in folders:
        raise SetupError(
            f"no version {chosen} in {str(run)!r}: it has {', '.join(map(str, sorted(folders)))}"
        )
    state = read_object(folders[chosen] / "state.json")
    try:
        return _Version(folders[chosen].resolve(), chosen, state["sha256"], state["fingerprint"]["model"])
    except (KeyError, TypeError) as error:
        raise SetupError(f"{folders[chosen] / 'state.json'}: {error!r}") from error


def _groups(specs: Iterable[str]) -> list[list[_Player]]:
    """The players that need a server, by server. A base model joins its LoRA versions."""
    groups: dict[tuple[Path, Path | None], list[_Player]] = {}
    for player in (_read(spec) for spec in specs if _is_served(spec)):
        alone = player.version.folder if player.version and player.version.whole else None
        groups.setdefault((player.folder, alone), []).append(player)
    return list(groups.values())


def _command(group: Sequence[_Player], *, port: int, device: str, share: float, log: Path) -> ServiceCommand:
    adapters = [player.version for player in group if player.version]
    flags: dict[str, object] = {
        "model": group[0].folder,
        "host": HOST,
        "port": port,
        "device": device,
        "follow": False,
        "adapter_root": os.path.commonpath([v.folder.parent for v in adapters]) if adapters else log.parent,
    }
    lora = [version for version in adapters if not version.whole]
    if lora:
        rank = max(version.rank for version in lora)
        flags |= {"max_loras": len(lora) + 1, "max_lora_rank": served_rank(rank)}
    else:  # a model without adapters is served faster without LoRA, and a GPT-2 not at all with it
        flags["full_weights"] = True
    if device not in CPU:
        flags["gpu_memory"] = round(share, 3)
    return ServiceCommand(
        "inference server",
        (*SERVICES["inference"].argv, *as_flags(flags)),
        log,
        probe_url=f"{AccessSettings().access.scheme}://{HOST}:{port}/readyz",
    )


async def _load(group: Sequence[_Player], url: str, device: str) -> dict[str, str]:
    """Has the server at `url` load the versions. Returns the new spec of each player. Versions are numbered
    anew, because those of several runs may have the same numbers."""
    resolved = {}
    names: dict[Path, str] = {}
    async with InferenceClient(url, access=AccessSettings().access, timeout_s=_RELOAD_S) as inference:
        for player in group:
            model, version = player.folder.name, player.version
            if version and version.folder not in names:
                number = len(names)
                adapter = Adapter(PolicyVersion(number, version.sha256), str(version.folder), version.base)
                await inference.reload(adapter)
                names[version.folder] = policy_name(number)
            resolved[player.spec] = player.at(url, names[version.folder] if version else model, device)
    return resolved
