"""placeholder: only batch."""

import sys

from kvcalc.batch import answers


def main() -> None:
    bad = 0
    for ok, text in answers(sys.stdin):
        bad |= not ok
        sys.stdout.write(text + "\n")
    sys.exit(3 if bad else 0)
