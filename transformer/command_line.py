"""What every command shares: flags, logging, exit codes and signals.

Exit codes: 0 done, 2 the user's input was wrong (one sentence on stderr), 1 a bug of
ours (a traceback), 143 after SIGTERM and 130 after SIGINT.
"""

import argparse
import ast
import contextlib
import dataclasses
import errno
import importlib.util
import inspect
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from ml_collections import ConfigDict

from transformer.config import Config, DecodeConfig
from transformer.errors import UserError

logger = logging.getLogger("transformer")

# glibc gives freed memory back to the system, and XLA asks for it again with every
# large buffer: page faults that cost a good part of a step on a CPU. These settings
# keep it, in huge pages. They are read when a process starts.
MALLOC_SETTINGS = ":".join(
    (
        "glibc.malloc.hugetlb=1",
        "glibc.malloc.mmap_max=0",
        "glibc.malloc.trim_threshold=17179869184",
        "glibc.malloc.top_pad=268435456",
    )
)


_DECODE_FLAGS: tuple[tuple[str, type, str], ...] = (
    ("beam", int, "hypotheses kept; 1 is greedy"),
    ("alpha", float, "exponent of the length penalty"),
    ("min_length", int, "pieces of the shortest output"),
    ("no_repeat_ngram", int, "no n-gram of pieces twice; 0: it may"),
    ("temperature", float, "above 0: draw samples instead of searching"),
    ("top_k", int, "draw among the k likeliest pieces; 0: all"),
    ("top_p", float, "draw among the likeliest pieces of this probability together"),
    ("seed", int, "of the draws"),
    ("max_extra_tokens", int, "longest output: source tokens plus this"),
    ("max_source_tokens", int, "longer lines are cut here, with a warning"),
)


class Interrupted(BaseException):
    """SIGTERM or SIGINT arrived; `code` is the process's exit code for it."""

    def __init__(self, number: int):
        """Remembers the signal's number."""
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


class ArgumentParser(argparse.ArgumentParser):
    """A parser whose errors are `UserError`, without abbreviated flags."""

    def __init__(self, **settings: Any):
        """Takes argparse's own settings."""
        super().__init__(
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **settings,
        )

    def error(self, message: str) -> NoReturn:
        """Replaces argparse's usage dump by one sentence."""
        raise UserError(f"{message}; see --help")


def run_command(command: Callable[[Sequence[str]], None]) -> NoReturn:
    """Runs `command(argv)` as a process: logging on, errors as exit codes."""
    log_to_stderr()
    _catch_signals()
    try:
        command(sys.argv[1:])
        sys.stdout.flush()
    except UserError as error:
        _end(f"error: {error}", 2)
    except Interrupted as interrupt:
        _end(f"stopped by {interrupt}", interrupt.code)
    except BrokenPipeError:
        # The reader of stdout went away; Python's own flush at exit must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        where = error.filename or "the output"
        _end(f"error: {where} cannot be written: {error.strerror}", 2)
    sys.exit(0)


def _end(message: str, code: int) -> NoReturn:
    """Says one line on stderr and exits."""
    print(message, file=sys.stderr)
    sys.exit(code)


def _catch_signals() -> None:
    """SIGTERM and SIGINT raise `Interrupted` in the main thread; a second one kills."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Interrupted(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupt)


def log_to_stderr() -> None:
    """Our own messages from INFO, other libraries' from WARNING, all to stderr."""
    logging.basicConfig(
        stream=sys.stderr,
        format="%(asctime)s %(message)s",
        datefmt="%H:%M:%S",
        level=logging.WARNING,
        force=True,
    )
    logger.setLevel(logging.INFO)
    # Orbax logs tracebacks of what it raises as well; we report it in a sentence.
    logging.getLogger("absl").setLevel(logging.CRITICAL)


@contextlib.contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Keeps our messages in a file as well, with the date."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def keep_freed_memory() -> None:
    """Starts this process again with `MALLOC_SETTINGS` where that helps: CPU, glibc."""
    on_cpu = os.environ.get("JAX_PLATFORMS", "cpu") == "cpu"
    if not sys.platform.startswith("linux") or not on_cpu:
        return
    if "GLIBC_TUNABLES" in os.environ:
        return
    os.environ["GLIBC_TUNABLES"] = MALLOC_SETTINGS
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def load_config(path: str, overrides: Mapping[str, str]) -> Config:
    """Runs `get_config` of a file and applies overrides by dotted key.

    `path` may end in `:VARIANT`, which is handed to `get_config`. An override's text is
    read as a Python literal where the key does not hold a text.

    Raises:
      UserError: there is no such file, variant or key, or a value does not fit.
    """
    file, _, variant = path.partition(":")
    get_config = _config_module(file).get_config
    if variant and not inspect.signature(get_config).parameters:
        raise UserError(f"--config={path}: {file} has no variants")
    config = get_config(variant) if variant else get_config()
    if not isinstance(config, ConfigDict):
        raise UserError(f"{file}: get_config() must return a ConfigDict")
    values = config.to_dict()
    for key, text in overrides.items():
        section, _, name = key.partition(".")
        group = values.get(section)
        if not isinstance(group, dict) or not name:
            raise UserError(f"--config.{key}: there is no such configuration key")
        group[name] = _literal(text, group.get(name))
    return Config.from_dict(values)


def _config_module(file: str) -> Any:
    """The Python module in `file`, with the same errors whatever is wrong with it."""
    if not Path(file).is_file():
        raise UserError(f"--config={file}: there is no such file")
    spec = importlib.util.spec_from_file_location("experiment", file)
    if spec is None or spec.loader is None:
        raise UserError(f"--config={file}: a configuration is a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    # Configurations build on one another: `from configs import base`.
    root = str(Path(__file__).resolve().parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, ImportError) as error:
        raise UserError(f"--config={file} cannot be loaded: {error}") from error
    if not hasattr(module, "get_config"):
        raise UserError(f"--config={file}: the file defines no get_config()")
    return module


def _literal(text: str, old: Any) -> Any:
    """A flag's text as a value of the kind that the key holds now."""
    if isinstance(old, str):
        return text
    if isinstance(old, bool) and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # Config.from_dict refuses it and names the key


def split_overrides(
    argv: Sequence[str], prefix: str = "--config."
) -> tuple[list[str], dict[str, str]]:
    """Takes `--config.KEY=VALUE` (or `--config.KEY VALUE`) out of the arguments."""
    rest: list[str] = []
    overrides: dict[str, str] = {}
    arguments = iter(argv)
    for argument in arguments:
        if not argument.startswith(prefix):
            rest.append(argument)
            continue
        key, equals, value = argument.removeprefix(prefix).partition("=")
        if not equals:
            try:
                value = next(arguments)
            except StopIteration:
                raise UserError(f"{argument} needs a value") from None
        overrides[key] = value
    return rest, overrides


def add_decode_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that choose checkpoints and change the run's search settings."""
    parser.add_argument("--step", type=int, help="the checkpoint; default: the newest")
    parser.add_argument(
        "--average", type=int, default=1, help="average the last N checkpoints"
    )
    settings = parser.add_argument_group("in place of the run's decode.* settings")
    for name, kind, meaning in _DECODE_FLAGS:
        settings.add_argument(
            f"--{name.replace('_', '-')}", type=kind, help=meaning, metavar="X"
        )


def decode_settings(flags: argparse.Namespace, decode: DecodeConfig) -> DecodeConfig:
    """The run's search settings with those of the command line in their place."""
    given = {
        name: getattr(flags, name)
        for name, *_ in _DECODE_FLAGS
        if getattr(flags, name) is not None
    }
    decode = dataclasses.replace(decode, **given)
    decode.check()
    return decode
