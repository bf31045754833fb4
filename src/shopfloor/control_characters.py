"""Characters that control a terminal or a viewer, which text of a transcript must not do."""

from __future__ import annotations

from typing import Final

C0_CONTROLS: Final = tuple(code for code in range(0x20) if chr(code) not in "\n\t")
"""The controls of ASCII but DEL, line feed and tab."""
DEL: Final = 0x7F
C1_CONTROLS: Final = tuple(range(0x80, 0xA0))
DIRECTION_CONTROLS: Final = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""The characters that change the direction of text, which can make a command look like another one."""
REPLACEMENT: Final = 0xFFFD
"""The character that is shown in place of one that has no symbol."""
