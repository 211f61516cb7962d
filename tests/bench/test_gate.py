"""The gate tells whether seeded jobs say what they said at another commit."""

import json

import pytest

from bench import gate
from bench.gate import KINDS, Renames, jobs, main, play, text_of


def test_there_are_192_jobs_of_all_kinds() -> None:
    names = list(jobs())
    assert len(set(names)) == 192
    assert {name.rpartition("-")[0] for name in names} == set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["curve-0", "scenario-1", "recurring-1"])
def test_a_job_says_the_same_each_time(name: str) -> None:
    assert text_of(play(name), Renames()) == text_of(play(name), Renames()) != ""


def test_a_map_makes_new_names_and_texts_the_ones_before_and_nothing_else() -> None:
    lines: gate.Lines = [{"event": "setting_asked", "value": [1.0 / 3.0], "knob": "power", "text": "the knob moved"}]
    names = {"setting_asked": "cap_set", "value": "caps_w"}
    renames = Renames(names=names, texts={"the knob": "the cap"}, added=["knob"])
    before: gate.Lines = [{"event": "cap_set", "caps_w": [0.33333333333], "text": "the cap moved"}]
    assert text_of(lines, renames) == text_of(before, Renames())
    assert text_of(lines, Renames()) != text_of(before, Renames())


@pytest.mark.slow
def test_what_says_something_else_is_named_and_its_log_kept(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setitem(KINDS, "recurring", (4, KINDS["recurring"][1]))
    before, words = tmp_path / "before.json", ("--kinds", "recurring")
    assert main([*words, "--out", str(before)]) == 0
    assert main([*words, "--against", str(before), "--logs", str(tmp_path / "logs")]) == 0
    assert "4 say what they said\n" in capsys.readouterr().out
    before.write_text(json.dumps({**json.loads(before.read_text()), "recurring-3": "0"}))
    assert main([*words, "--against", str(before)]) == 1
    said = capsys.readouterr()
    assert "3 say what they said; 1 recurring do not" in said.out
    assert said.err == "others: recurring-3\n"
    assert len((tmp_path / "logs" / "recurring-3.jsonl").read_text().splitlines()) == 30
