"""The options that a script takes on its command line, as argparse or click has read them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any
from unittest.mock import patch


def watch_options(tell: Callable[..., None]) -> None:
    """Tells of every option with one number or a switch, once a parser has read the command line."""
    parse = argparse.ArgumentParser.parse_known_args

    def parse_known_args(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        found = parse(self, *args, **kwargs)
        every = vars(self)["_actions"]  # argparse shows them to nobody (Python 3.11 to 3.13)
        seen = [_describe_option(action, found[0]) for action in every]
        tell(options=[each for each in seen if each is not None])
        return found

    patch.object(argparse.ArgumentParser, "parse_known_args", parse_known_args).start()


def watch_click(click: Any, tell: Callable[..., None]) -> None:
    """The same for click, once it has read the command line (click 8)."""
    invoke = click.Command.invoke

    def invoke_watched(self: Any, ctx: Any) -> Any:
        seen = [_describe_click_option(each, ctx.params.get(each.name)) for each in self.params]
        tell(options=[each for each in seen if each is not None])
        return invoke(self, ctx)

    patch.object(click.Command, "invoke", invoke_watched).start()


def _describe_click_option(option: Any, value: Any) -> dict[str, Any] | None:
    if not any(each.startswith("-") for each in option.opts) or type(value) not in (int, float, bool):
        return None
    switch = bool(getattr(option, "is_flag", False))
    if isinstance(value, bool) and not switch:
        return None
    spelt = max(option.opts, key=len)
    return {"name": option.name, "option": spelt, "spelt": list(option.opts), "value": value, "switch": switch}


def _describe_option(action: argparse.Action, values: argparse.Namespace) -> dict[str, Any] | None:
    value = getattr(values, action.dest, None)
    if not action.option_strings or type(value) not in (int, float, bool):
        return None
    switch = action.nargs == 0 and getattr(action, "const", None) is True
    if isinstance(value, bool) and not switch:
        return None
    spelt = max(action.option_strings, key=len)
    return {"name": action.dest, "option": spelt, "spelt": action.option_strings, "value": value, "switch": switch}
