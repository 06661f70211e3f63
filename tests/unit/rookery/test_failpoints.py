import os
import re
import time
from pathlib import Path

import pytest

from rookery import failpoints
from rookery.errors import SetupError
from tests.conftest import ROOT
from tests.failing import armed


def test_it_acts_at_the_passage_it_was_told() -> None:
    with armed("commit.written=error@2"):
        failpoints.reach("commit.written")
        failpoints.reach("commit.renamed")
        with pytest.raises(OSError, match=r"failpoint commit\.written"):
            failpoints.reach("commit.written")
        failpoints.reach("commit.written")
    failpoints.reach("commit.written")


def test_a_delay_comes_each_time() -> None:
    with armed("commit.written=delay:20"):
        began = time.monotonic()
        failpoints.reach("commit.written")
        failpoints.reach("commit.written")
        assert time.monotonic() - began >= 0.04


def test_passages_are_written_down(tmp_path: Path) -> None:
    try:
        failpoints.arm({"ROOKERY_FAILPOINT_HITS": str(tmp_path / "hits")})
        failpoints.reach("archive.written")
        failpoints.reach("commit.renamed")
    finally:
        failpoints.arm(os.environ)
    assert (tmp_path / "hits").read_text() == "archive.written\ncommit.renamed\n"


@pytest.mark.parametrize("text", ["commit.written", "commit.wrote=kill", "commit.written=explode"])
def test_what_it_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(SetupError, match=re.escape(repr(text)) + ".* the places are trainer.stepped"):
        failpoints.arm({"ROOKERY_FAILPOINTS": text})


def test_every_place_is_in_the_source_once() -> None:
    source = "".join(path.read_text() for path in (ROOT / "services").rglob("*.py"))
    assert sorted(re.findall(r'\breach\("([\w.]+)"\)', source)) == sorted(failpoints.PLACES)
