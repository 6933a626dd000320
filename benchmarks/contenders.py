"""Programs that are measured side by side, each in a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from transformer.command_line import MALLOC_SETTINGS


class Contender:
    """A process that this script starts of itself, and that works when it is told."""

    def __init__(self, *flags: str, plain_malloc: bool = False):
        """Starts the script again with its own flags and these, and waits for it.

        It gets the malloc settings of our commands, unless it is to be measured with
        `plain_malloc`, what the system has.
        """
        settings = {} if plain_malloc else {"GLIBC_TUNABLES": MALLOC_SETTINGS}
        self._process = subprocess.Popen(
            [sys.executable, *sys.argv, *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | settings,
        )
        assert self._process.stdin and self._process.stdout
        self._questions, self._answers = self._process.stdin, self._process.stdout
        assert self._answers.readline() == "ready\n", flags

    def turn(self, setting: float) -> Any:
        """What the process's `turn` of `answer` gives for the setting."""
        self._questions.write(f"{setting}\n")
        self._questions.flush()
        return json.loads(self._answers.readline())

    def close(self) -> None:
        """Ends the process."""
        self._questions.close()
        self._process.wait()


def answer(turn: Callable[[float], Any]) -> None:
    """The other end: a turn for each setting on stdin, its result as JSON."""
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(turn(float(line))), flush=True)
