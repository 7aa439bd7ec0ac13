"""Word pools: few and short words, so that a tokenizer of two thousand entries has each as one token.

WORDS always follow a space in instructions, commands and observations, so that copying one is copying one
token. What a command must write without a space before it (sed patterns, keys, extensions) comes from the
small pools KEYS, SWAPS and EXTENSIONS, whose few entries a model sees often in either form. No word is part
of another: `grep -c oak` must not count "cloak".
"""

from __future__ import annotations


def _pool(words: str) -> tuple[str, ...]:
    return tuple(words.split())


WORDS: tuple[str, ...] = _pool(
    """
    acorn alley amber angle apple apron april arena armor aspen atlas attic bacon badge bagel baker
    banjo barley basil beach beaver bench berry birch bishop bison blade blaze bloom bonus brass
    bread brick bridge broom brush bucket budget butter cabin cable cactus camel camera candle canoe
    canyon carbon cargo carpet castle cedar cello cherry chess cider cinema circle circus clinic
    cloud clover cobra coffee comet copper coral cotton cradle crane crayon creek crown crystal
    curtain cymbal daisy dance delta denim desert diary dingo dolphin donkey dragon drum dune eagle
    easel elbow ember engine fabric falcon feather fennel ferry fiddle finch flame flint flora flute
    forest fossil fountain frost fudge galaxy garden garlic geyser ginger glacier globe glove goose
    grain grape gravel guitar hammer hamster harbor harvest hazel helmet hermit heron hockey honey
    hotel igloo iron island ivory jacket jaguar jasmine jelly jersey jigsaw jungle kayak kernel
    kettle kitten koala ladder lagoon lantern laurel lemon lily lizard llama lobster locket lotus
    lunar magnet mango maple marble market meadow melon mirror mitten monkey moss motor muffin
    museum napkin nectar needle nickel noodle nutmeg oasis ocean olive onion opera orbit orchid
    otter oven oyster paddle panda panther papaya parade parrot pastry pebble pepper piano pickle
    pigeon pillow planet plaza plum pocket poem poppy prairie pretzel prism puddle puffin pumpkin
    puzzle quartz quilt rabbit radar raisin raven ribbon river robin rocket rose saddle salmon
    sandal scarf seed shadow shell shrimp silk sketch sledge spider spoon
    """
)

KEYS: tuple[str, ...] = _pool(
    """
    host port user mode level size limit theme title owner region speed depth width label group
    """
)

SWAPS: tuple[str, ...] = _pool(
    """
    red blue green black white gold grey pink cat dog fox owl bear wolf fish duck
    """
)

EXTENSIONS: tuple[str, ...] = _pool(
    """
    log csv md conf dat yml xml html
    """
)
