"""The line editor: statements over several lines, history across sessions, completion, colours, a line of state.

What a terminal cannot do is left out; a history that cannot be written is kept in memory. It knows the shell only as
functions that it is given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, has_completions, is_done
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style, merge_styles, style_from_pygments_cls
from pygments.styles import get_style_by_name

from cql.catalog import Catalog
from cql.visible import visible
from repl.completion import candidates
from repl.highlighting import lexer
from repl.inputs import is_complete

PROMPT, GOES_ON = "cql> ", "...> "

_STYLE = Style.from_dict(
    {
        "prompt": "ansicyan bold",
        "continuation": "ansibrightblack",
        "bottom-toolbar": "noreverse bg:ansiblack ansiwhite",
    }
)


class Editor:
    """Reads statements from a terminal. `status` gives the line of state, or None if there is none."""

    def __init__(self, catalog: Callable[[], Catalog], status: Callable[[], str | None]) -> None:
        self._status = status
        self._session: PromptSession[str] = PromptSession(
            self._prompt,
            multiline=True,
            prompt_continuation=self._continuation,
            history=_history(),
            completer=_Completer(catalog),
            complete_while_typing=False,
            auto_suggest=AutoSuggestFromHistory(),
            lexer=PygmentsLexer(lexer()),
            style=merge_styles([style_from_pygments_cls(get_style_by_name("default")), _STYLE]),
            key_bindings=_keys(),
            enable_open_in_editor=True,
        )

    def read(self) -> str:
        """Return what is typed next; raises EOFError at Ctrl-D and KeyboardInterrupt at Ctrl-C."""
        is_on = self._status() is not None
        self._session.bottom_toolbar = self._toolbar if is_on else None
        self._session.refresh_interval = 1.0 if is_on else 0.0
        with patch_stdout(raw=True):
            return self._session.prompt()

    @property
    def typed(self) -> str:
        """What stood in the line when reading it ended."""
        return self._session.default_buffer.text

    def _prompt(self) -> StyleAndTextTuples:
        return [("class:prompt", PROMPT)]

    def _continuation(self, width: int, line_number: int, wrap_count: int) -> StyleAndTextTuples:
        return [("class:continuation", GOES_ON if not wrap_count else " " * len(GOES_ON))]

    def _toolbar(self) -> str:
        status = self._status()
        if status is None:
            self._session.bottom_toolbar = None
        return visible(status or "")


class _Completer(Completer):
    def __init__(self, catalog: Callable[[], Catalog]) -> None:
        self._catalog = catalog

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        for each in candidates(document.text_before_cursor, document.text_after_cursor, self._catalog()):
            shown, what = visible(each.text), visible(each.what)
            yield Completion(each.text, -each.length, display=shown, display_meta=what)


def _keys() -> KeyBindings:
    """Return what keys do here: Enter ends what is complete, and begins a new line in what is not."""
    keys = KeyBindings()

    @keys.add("enter", filter=~is_done & ~Condition(_is_choosing))
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.newline(copy_margin=False)

    @keys.add("enter", filter=has_completions & Condition(_is_choosing))
    def choose(event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    return keys


def _is_choosing() -> bool:
    """Tell whether one of the completions is selected, so that Enter takes it."""
    from prompt_toolkit.application import get_app

    state = get_app().current_buffer.complete_state
    return state is not None and state.current_completion is not None


# History


def history_path() -> Path:
    """Return where the history is kept: in the user's folder for state."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "cql" / "history"


def _history() -> History:
    with suppress(OSError, RuntimeError):
        path = history_path()
        path.parent.mkdir(parents=True, exist_ok=True)
        # Options of sources may hold passwords.
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600))
        return _TolerantHistory(path)
    return InMemoryHistory()


class _TolerantHistory(FileHistory):
    """A history that goes on in memory when its file cannot be written or read any more."""

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(string)
