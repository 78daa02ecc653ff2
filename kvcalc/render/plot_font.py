"""Characters five dots wide and seven high, tails below the line, for pictures that no browser sets type for.

Five bytes a character from space to tilde, one a column from left to right; the lowest bit is the top dot, the eighth a tail.
"""

from __future__ import annotations

COLUMNS, ROWS = 5, 7
_FIRST = 0x20
_UNKNOWN = "?"

_DOTS = bytes.fromhex(
    # (space) ! " # $ % & ' ( ) * + , - . /
    "0000000000 00005f0000 0007000700 147f147f14 242a7f2a12 2313086462 3649552250 0000070000"
    "001c224100 0041221c00 0a041f040a 08083e0808 0080603000 0808080808 0060600000 2010080402"
    # 0 1 2 3 4 5 6 7 8 9 : ; < = > ?
    "3e5149453e 00427f4000 4261514946 2141454b31 1814127f10 2745454539 3c4a494930 0171090503"
    "3649494936 064949291e 0036360000 0080763600 0814224100 1414141414 0041221408 0201510906"
    # @ A B C D E F G H I J K L M N O
    "3e415d551e 7e0909097e 7f49494936 3e41414122 7f4141413e 7f49494941 7f09090901 3e4149497a"
    "7f0808087f 00417f4100 2040413f01 7f08142241 7f40404040 7f020c027f 7f0408107f 3e4141413e"
    # P Q R S T U V W X Y Z [ \ ] ^ _
    "7f09090906 3e4151215e 7f09192946 2649494932 01017f0101 3f4040403f 1f2040201f 3f4038403f"
    "6314081463 0304780403 6151494543 007f414100 0204081020 0041417f00 0402010204 4040404040"
    # ` a b c d e f g h i j k l m n o
    "0001020400 2054545478 7f48444438 3844444428 384444487f 3854545418 087e090902 18a4a4a47c"
    "7f08040478 00447d4000 4080847d00 7f10284400 00417f4000 7c04780478 7c08040478 3844444438"
    # p q r s t u v w x y z { | } ~
    "fc24242418 18242424fc 7c08040408 4854545424 043f444420 3c4040207c 1c2040201c 3c4030403c"
    "4428102844 1ca0a0a07c 4464544c44 0008364100 00007f0000 0041360800 0804080804"
)


def dots(text: str) -> list[tuple[int, int]]:
    """Column and row of every dot of `text`, six columns a character; what is not ASCII is a question mark."""
    found = []
    for place, character in enumerate(text):
        index = ord(character if " " <= character <= "~" else _UNKNOWN) - _FIRST
        for column, byte in enumerate(_DOTS[index * COLUMNS : (index + 1) * COLUMNS]):
            found += [(place * (COLUMNS + 1) + column, row) for row in range(ROWS + 1) if byte >> row & 1]
    return found


def columns(text: str) -> int:
    """How many columns `text` is wide, without the gap behind its last character."""
    return max(len(text) * (COLUMNS + 1) - 1, 0)
