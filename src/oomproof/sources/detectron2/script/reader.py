"""Follows what a script does to its config, in the order in which it would run. It may train more than once: what its
trainings have in common is known.

What depends on more than the code (the command line, the environment, files that are made on the way) is not guessed:
it stays unknown, and so does everything that comes of it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from oomproof.errors import InputError
from oomproof.sources.detectron2.config.config import Origin
from oomproof.sources.detectron2.script import (
    arguments,
    both_ways,
    calling,
    choosing,
    config_steps,
    evaluating,
    foreign,
    generators,
    handing_on,
    loading,
    looking_up,
    methods,
    optimizers,
    running_text,
    statements,
)
from oomproof.sources.detectron2.script.both_ways import Exit, Outcome, ScriptEnds
from oomproof.sources.detectron2.script.contents import (
    Call,
    Class,
    Content,
    Foreign,
    Function,
    Items,
    Made,
    Memory,
    Method,
    Optimizer,
    Partial,
    Parts,
    Ref,
    Run,
    Super,
    Unknown,
)
from oomproof.sources.detectron2.script.joining import join_memories, join_runs, join_values
from oomproof.sources.detectron2.script.with_blocks import WithBlock

_DEEPEST = 25
_MOST_STEPS = 100_000


_CALLS: dict[type, Callable[[Any, Any, Call], Any]] = {
    Function: calling.call_function,
    Foreign: foreign.call_foreign,
    Method: methods.call_method,
}


class FollowedEnough(Exception):
    """Behind a training, code that is too long to be followed is left alone."""


class Reader:
    """The state of one script while it is followed."""

    def __init__(
        self,
        path: Path,
        tree: ast.Module,
        overrides: Sequence[str] = (),
        config_file: str = "",
        gpus: int = 1,
        *,
        open_arguments: bool = False,
    ) -> None:
        self.path, self.tree, self.overrides, self.config_file = path, tree, tuple(overrides), config_file
        self.gpus_given, self.open_arguments = gpus, open_arguments
        """whether options that say nothing by default may be given, ``--train`` and the like"""
        self.file = str(path)
        self.memory = Memory()
        self.module = self.memory.new(Parts("scope", {"__name__": "__main__", "__file__": str(path)}))
        self.modules: dict[str, Ref] = {str(path.resolve()): self.module}
        self.arguments = arguments.find_arguments(tree)
        self.defaults_taken: dict[str, Any] = {}
        self.config_file_used = False
        self.config_file_left_out = False
        """whether the script asks Detectron2's parser for one, which has none unless the command line names it"""
        self.config_file_places: set[Any] = set()
        """configs and code that the file was merged by"""
        self.defaults: Ref | None = None
        """``detectron2.config.defaults._C``, where a project takes it"""
        self.configs, self.runs = list[Ref](), list[Ref]()
        self.written: set[str] = set()
        """files that the script writes: what is in them now may be of another run"""
        self.loaders = self.memory.new(Items(()))
        self.results = self.memory.new(Parts("results"))
        """of functions that are run once, by their arguments"""
        self.orders, self.replaced = dict[tuple[Ref, tuple[Any, ...]], list[Any]](), dict[str, tuple[Any, str]]()
        """of classes, with what they are based on; what stands in place of parts of Detectron2, and where"""
        self.folders: list[Path] = []
        """where the script says that modules are as well"""
        self.optimizers: set[Optimizer] = set()
        self.gpus: Any = 1
        self.blind: list[str] = []
        """trainers whose config is not known at all"""
        self.owners: dict[ast.AST, Ref] = {}
        """the class of each method"""
        self.classes_made: set[ast.AST] = set()
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        self.names_accumulate = "Accumulate" in names
        self.has_detectron2s_parser = "default_argument_parser" in names
        self.read_keys = {
            ast.unparse(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        }
        self._steps, self.forks, self.runs_handed, self.ended = 0, 0, False, False
        """whether the script ends by ``sys.exit`` or an error, as far as its code tells"""
        self.calls, self._followed = list[ast.AST](), set[ast.AST]()
        self.handed: list[tuple[Any, Call]] = []
        """functions of the script that other code has and may call at any time, each with the call that handed it on"""
        self.returns: list[list[tuple[Any, dict[int, Content], str]]] = []
        self.exits: list[list[Exit]] = []
        """of each loop, in this round"""
        self.block: WithBlock | None = None
        """of a ``with``, in the function that yields to it"""
        self.block_to_come: WithBlock | None = None
        self.yields: generators.Yields | None = None
        """of the generator that is followed"""

    def read(self) -> None:
        """Follows the script as it is run."""
        try:
            statements.follow_statements(self, self.tree.body, self.module)
        except ScriptEnds:
            self.ended = True
        except FollowedEnough:
            pass
        except InputError:
            if not self.trains():
                raise

    def read_functions(self) -> None:
        """Follows what others may call, where the script trains nothing by itself; what its own code calls comes last,
        and then not by its defaults, which that code may overrule."""
        calls = [node.func for node in ast.walk(self.tree) if isinstance(node, ast.Call)]
        called = {node.id for node in calls if isinstance(node, ast.Name)}
        inner = {each for each in self.tree.body if isinstance(each, ast.FunctionDef) and each.name in called}
        for node in sorted(self.tree.body, key=lambda each: each in inner):
            if self.runs:
                return
            self._call_from_outside(node, by_defaults=not self.ended and node not in inner)

    def _call_from_outside(self, node: ast.stmt, *, by_defaults: bool) -> None:
        """What a launcher, a framework or another file runs."""
        content = self.memory[self.module]
        value = content.parts.get(getattr(node, "name", "")) if isinstance(content, Parts) else None
        try:
            if isinstance(value, Function) and node not in self._followed:
                open_defaults = tuple((name, Unknown(name)) for name, _ in value.defaults)
                self.call(value if by_defaults else replace(value, defaults=open_defaults), Call((), {}, node))
            elif isinstance(self.memory.get(value), Class) and node not in self.classes_made:
                made = self.call(value, Call((), {}, node))
                for each in node.body if isinstance(node, ast.ClassDef) else ():
                    if isinstance(each, ast.FunctionDef) and each not in self._followed and not self.runs:
                        self.call(self.function(each, self.module), Call((made,), {}, each))
        except (ScriptEnds, FollowedEnough):
            pass

    # -- what the other files ask for ------------------------------------------------------------------------------

    def at(self, node: ast.AST) -> Origin:
        return Origin(self.file, getattr(node, "lineno", 0))

    def count(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > _MOST_STEPS and self.trains():
            raise FollowedEnough
        if self._steps > _MOST_STEPS:
            raise InputError(f"{self.path} does too much to be followed; give its config as a YAML file")

    def evaluate(self, node: ast.expr, scope: Ref) -> Any:
        return evaluating.evaluate_node(self, node, scope)

    def follow(self, body: list[ast.stmt], scope: Ref) -> Outcome:
        return statements.follow_statements(self, body, scope)

    def assign(self, target: ast.expr, value: Any, node: ast.expr, scope: Ref) -> None:
        statements.assign(self, target, value, node, scope)

    def set_attribute(self, of: Any, name: str, value: Any, node: ast.AST) -> None:
        statements.set_attribute(self, of, name, value, node)

    def set_name(self, name: str, value: Any, scope: Ref) -> None:
        scope = looking_up.scope_to_set(self, name, scope)
        content = self.memory[scope]
        if isinstance(content, Parts):
            self.memory[scope] = replace(content, parts={**content.parts, name: value})

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Ref) -> Function:
        """A function with the defaults that its parameters have when it is defined."""
        spec = node.args
        plain = [*spec.posonlyargs, *spec.args]
        pairs = list(zip(plain[len(plain) - len(spec.defaults) :], spec.defaults, strict=True))
        pairs += [(name, value) for name, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value]
        defaults = tuple((name.arg, self.evaluate(value, scope)) for name, value in pairs)
        around = self.memory[scope]
        if isinstance(around, Parts) and around.kind == "class" and around.above is not None:
            scope = around.above  # methods see the names around the class, not those in it
        return Function(node, scope, self.file, defaults)

    # -- calls -----------------------------------------------------------------------------------------------------

    def call_at(self, node: ast.Call, scope: Ref) -> Any:
        called = self.evaluate(node.func, scope)
        if called in running_text.RUNS_TEXT:
            return running_text.run_text(self, called, node, scope)
        if called in running_text.SHOWS_NAMES and not node.args and not node.keywords:
            return running_text.show_names(self, called, scope)
        return self.call(called, calling.call_at(self, node, scope))

    def arguments_at(self, node: ast.Call, scope: Ref) -> Call:
        return calling.call_at(self, node, scope)

    def call(self, called: Any, call: Call) -> Any:
        match called:
            case Partial(function, given, words):
                return self.call(
                    function, replace(call, given=(*given, *call.given), words={**dict(words), **call.words})
                )
            case Super():  # ``super()``: in a method the name stands for what it gives
                return called
            case Ref() if isinstance(self.memory[called], Class):
                return calling.make_object(self, called, call)
            case Ref() if isinstance(way := looking_up.find_method(self, called, "__call__"), Function):
                return self.call(way, replace(call, given=(called, *call.given)))
        way = _CALLS.get(type(called))
        if way is not None:
            return way(self, called, call)
        handing_on.call_unknown(self, call)
        return choosing.call_choices(self, called, call)

    def enter(self, node: ast.AST) -> bool:
        if len(self.calls) >= _DEEPEST or self.calls.count(node) > 2:
            return False
        self.calls.append(node)
        self._followed.add(node)
        return True

    def leave(self) -> None:
        self.calls.pop()

    def follow_function(self, body: list[ast.stmt], scope: Ref) -> Any:
        """A function's body; what it returns by one way or another is joined."""
        self.returns.append([])
        exits, self.exits = self.exits, []  # a loop around the call is not left from within it
        try:
            outcome = statements.follow_statements(self, body, scope)
        finally:
            returns, self.exits = self.returns.pop(), exits
        value = outcome.value if outcome is not None else None
        for other, contents, why in returns:
            self.memory.contents = join_memories(self.memory.contents, contents, why)
            value = join_values(value, other, why)
        return value

    # -- two ways on, and the end of both --------------------------------------------------------------------------

    def either_value(self, why: str, one: Callable[[], Any], other: Callable[[], Any]) -> Any:
        return both_ways.either_value(self, why, one, other)

    def either(self, why: str, one: Callable[[], Outcome], other: Callable[[], Outcome]) -> Outcome:
        return both_ways.either(self, why, one, other)

    def finds_training(self) -> bool:
        return bool(self.runs or self.blind)

    def trains(self) -> bool:
        return any(run.begun for run in self._found_runs())

    def end(self) -> None:
        raise ScriptEnds

    # -- what was found --------------------------------------------------------------------------------------------

    def choose_run(self) -> Run:
        """What all trainings of the script have in common; of one that begins none, the config that it cares most
        for."""
        runs = self._found_runs()
        if runs:
            others = [each for each in runs[1:] if each.begun]
            why = f"which of the script's {len(others) + 1} trainings is meant"
            run = reduce(lambda run, other: join_runs(run, other, why), others, runs[0])
            loaders = self.memory[self.loaders]
            built = run.by_hand and loaders != Items(())
            run = optimizers.of_loop(self, run)
            return loading.take_loaders(run, loaders, f"{self.path}: which of its loaders trains") if built else run
        made = [content for ref in self.configs if isinstance(content := self.memory.get(ref), Made)]
        lost = next((each.config.lost for each in made if each.config.lost), "")
        if self.blind and lost:  # when that is given, the rest may be known
            raise InputError(lost)
        instead = f"give its YAML file instead, or {config_steps.ANSWER}"
        if self.blind:
            raise InputError(f"{self.blind[0]}, which the script alone does not tell; {instead}")
        if not made:
            raise InputError(f"{self.path} makes no config that its code alone tells; {instead}")
        return Run(max(made, key=lambda each: each.touched).config)

    def _found_runs(self) -> list[Run]:
        return [run for ref in self.runs if isinstance(run := self.memory.get(ref), Run)]
