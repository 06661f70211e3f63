"""`rookery data annotate`: writes analyses in prose and checks every claim. Can be stopped and continued."""

import sys
from dataclasses import asdict

from chess_datasets.annotate.annotating import ANNOTATIONS, AnnotationRecipe, write_annotations
from chess_datasets.annotate.compose import Manner
from chess_datasets.annotate.study import Effort
from chess_datasets.commands.engines import made_parts
from chess_datasets.commands.settings.positions import AnnotateSettings


def annotate(settings: AnnotateSettings) -> int:
    """Runs the command and returns the exit status."""
    manner = settings.recipe(Manner)
    recipe = AnnotationRecipe(settings.style, manner, Effort.of(settings.nodes, lines=settings.lines))
    made = made_parts(settings, ANNOTATIONS, recipe.annotate, stage="annotate", terms=asdict(recipe))
    with made as (parts, terms):
        manifest = write_annotations(parts, parts.folder, terms=terms)
    count = manifest["annotations"]
    sys.stderr.write(f"{count} annotations, {manifest['claims']} claims, all true; {manifest['by_voice']}\n")
    if count < settings.count:
        sys.stderr.write(f"{settings.count} were asked for; there are no more positions\n")
    return 0
