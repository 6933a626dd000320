"""The one exception that means "the user's input is wrong"."""


class UserError(Exception):
    """A mistake of the user's: one clear sentence that says what to change.

    The sentence names the file, line, key or step concerned. Commands print it
    without a traceback and exit with code 2; every other exception is a bug of ours.
    """
