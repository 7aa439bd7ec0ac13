"""Notes for pretraining: reproducible, true to the families, and learned only where they can be predicted."""

import re

import pytest

from sandbox.errors import InputError
from sandbox.factory.drills import notes
from sandbox.factory.drills.notes import to_trajectory

FAMILIES = ["config", "rename", "symlink", "write"]


def test_same_seed_gives_the_same_notes_and_another_seed_others():
    first = list(notes(40, 7, FAMILIES))
    assert first == list(notes(40, 7, FAMILIES))
    # Of the shortest notes there are few, and some come again under any seed.
    others = set(notes(40, 8, FAMILIES))
    assert len(set(first) & others) < 20
    assert not {note for note in first if note[1].count("\n") > 1} & others


def test_every_numbered_part_has_its_command():
    for text, commands in notes(80, 0, FAMILIES):
        assert len(re.findall(r"\(\d\) ", text)) == commands.count("\n") >= 1
        for file in re.findall(r"\w+\.txt", commands):
            assert file in text


def test_notes_are_short_and_whole():
    sizes = {commands.count("\n") for _, commands in notes(80, 0, ["rename"])}
    assert sizes == {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("families", "named"), [(["sweep"], "sweep"), (["nothing"], "nothing"), (["find"], "look first")]
)
def test_families_without_notes_are_refused(families, named):
    with pytest.raises(InputError, match=named):
        list(notes(1, 0, families))


def test_only_commands_are_learned(chat):
    note = ("(1) acorn.txt to apple.txt\n", "mv acorn.txt apple.txt\n")
    record = to_trajectory("note-0", note, chat)
    learned = record.tokens[record.loss_mask].tolist()
    assert learned == chat.text_ids(note[1])
    assert record.tokens.tolist() == chat.text_ids(note[0]) + learned
