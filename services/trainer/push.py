"""`rookery push`: one version of a run as a model on the Hugging Face Hub, with a model card."""

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import Field
from pydantic_settings import CliPositionalArg

from rookery.errors import PeerFault, SetupError, cause_message
from rookery.files import read_object
from rookery.hub import MANIFEST_FILE, is_hub_fault
from rookery.remote import PathOrUrl
from rookery.settings import Settings
from services.trainer import merge

logger = logging.getLogger(__name__)

CARD = "README.md"


class PushSettings(Settings, env_prefix="PUSH_"):
    """Merge a version of a run into its base model, and upload it to the Hugging Face Hub with a model card.

    The token is that of `hf auth login` or of HF_TOKEN; HF_ENDPOINT names another hub.
    """

    run: CliPositionalArg[PathOrUrl]
    """The run's folder or URL, and the version after an @: runs/demo@80. Without one, the newest."""
    repo: CliPositionalArg[str] = Field(pattern=r"^[\w.-]{1,96}/[\w.-]{1,96}$")
    """Repository: OWNER/NAME. It is made if there is none."""
    base: PathOrUrl = ""
    """Where the base model is, if it is not where the run found it."""
    report: Path | None = None
    """The report.json of an evaluation, whose figures the card shows. Default: that of the run, if any."""
    private: bool = True
    """Make a new repository private."""
    dry_run: bool = False
    """Print the card and upload nothing."""


def run(settings: PushSettings) -> None:
    """Merges, writes the card and uploads both in one commit. Raises `SetupError` if there is no such run,
    version or report, or the Hub refuses the token or the name; `PeerFault` if the Hub does not answer."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    report = _report(settings)
    with TemporaryDirectory(prefix="rookery-push-") as temporary:
        folder = Path(temporary) / "model"
        merge.run(merge.MergeSettings(run=settings.run, out=folder, base=settings.base))
        manifest = read_object(folder / MANIFEST_FILE)
        card = model_card(settings.repo, manifest, report)
        if settings.dry_run:
            os.write(1, card.encode())
            return
        (folder / CARD).write_text(card)
        api = HfApi()
        try:
            url = api.create_repo(settings.repo, private=settings.private, exist_ok=True)
            api.upload_folder(
                repo_id=settings.repo,
                folder_path=folder,
                commit_message=f"Version {manifest['version']} of {manifest['run']}",
            )
        except (HfHubHTTPError, ValueError) as error:
            raise SetupError(
                f"{settings.repo}: {cause_message(error)} (HF_TOKEN, `hf auth login`)"
            ) from error
        except Exception as error:
            if not is_hub_fault(error):
                raise
            raise PeerFault(f"{api.endpoint}: {cause_message(error)}") from error
    logger.info("version %d of %s is at %s", manifest["version"], manifest["run"], url)


def _report(settings: PushSettings) -> Mapping[str, Any]:
    """The report of an evaluation; empty if there is none and none was asked for."""
    path = settings.report or Path(settings.run.removeprefix("run:").partition("@")[0]) / "report.json"
    if settings.report is None and not path.is_file():
        return {}
    try:
        return read_object(path)
    except SetupError as error:
        raise SetupError(f"{error} (--report)") from error


def model_card(repo: str, manifest: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """The card: the base, the prompt style, how it was trained, and the figures of an evaluation."""
    base, _, digest = manifest["base"].partition("@")
    trained = "\n".join(f"| {name} | `{value}` |" for name, value in manifest["trained"].items())
    versions = ", ".join(f"{name} {version}" for name, version in manifest["made_with"].items())
    figures = "\n".join(_figures(report))
    return f"""---
library_name: transformers
base_model: {base}
tags: [chess, reinforcement-learning, rookery]
---

# {repo.partition("/")[2]}

Chooses chess moves. Version {manifest["version"]} of the run `{manifest["run"]}`, trained with
Rookery by reinforcement learning from verifiable rewards, and merged into its base `{base}` (`{digest}`).

It reads positions in the prompt style `{manifest["style"]}` and answers with its move in `\\boxed{{}}`:

    rookery ask "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1" --model {repo}

## Training

| | |
|---|---|
{trained}

Made with {versions}. SHA-256 of the version's weights: `{manifest["version_sha256"]}`.
{figures}"""


def _figures(report: Mapping[str, Any]) -> Iterator[str]:
    """The tables of an evaluation, a section each."""
    for name, section in report.get("sections", {}).items():
        metrics = {key: values for key, values in section.get("metrics", {}).items() if values}
        players = list(dict.fromkeys(player for values in metrics.values() for player in values))
        if not players:
            continue
        yield f"\n## Evaluation: {name} (95% intervals)\n"
        yield f"| | {' | '.join(players)} |\n|---|{'---|' * len(players)}"
        for key, values in metrics.items():
            yield f"| {key.replace('_', ' ')} | {' | '.join(_figure(values.get(p)) for p in players)} |"


def _figure(value: Any) -> str:
    try:
        low, high = value["ci95"]
        return f"{value['mean']:.3g} [{low:.3g}, {high:.3g}]"
    except (TypeError, KeyError, ValueError):
        return ""
