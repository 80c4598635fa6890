"""What reaches a terminal: nothing that it would obey, whoever wrote it, and no secret."""

from __future__ import annotations

import json
import os
import pickle
import time
from pathlib import Path

import pytest

from cql import CqlError
from cql.catalog import Catalog, External
from cql.parsing import parse_script
from cql.secrets import is_secret, secret_places, shown_options, without_secrets
from cql.source import SourceText
from cql.visible import visible, visible_lines
from repl.cli import main
from runtime.columns.texts import json_text
from runtime.network.record import source_name

ESCAPE, C1, BIDI = "\x1b]0;title\x07\x1b[31m", "\x9b2J", "\u202e\u2066\u200f\u061c"
HOSTILE = f"{ESCAPE}{C1}{BIDI}"
OBEYED = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *BIDI, "\u2028", "\u2029"]


def harmless(text: str) -> bool:
    found = {character for character in OBEYED if character not in "\n\t" and character in text}
    assert not found, text
    return True


def test_what_terminals_obey_is_spelled_out_and_nothing_else() -> None:
    assert harmless(visible("".join(OBEYED))) and "\n" not in visible("\n")
    assert visible_lines("a\tb\n") == "a\tb\n" and harmless(visible_lines("".join(OBEYED).replace("\t", "")))
    for plain in ("a b", "ünïcödé", "日本語", "👩‍💻", "a\u0301", "\\x1b", "'", "e\u200bf"):
        assert visible(plain) == plain


def test_json_for_terminals_means_what_it_meant() -> None:
    text = f'"{HOSTILE}\n\\'
    assert harmless(json_text(text)) and json.loads(json_text(text)) == text


# The command line


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script whose name, text, columns and data are hostile."""
    monkeypatch.chdir(tmp_path)
    Path(f"in{C1}{BIDI}.csv").write_text(f"{HOSTILE}x,1\nno,end\n", encoding="utf-8")
    script = Path(f"s{ESCAPE}.cql".replace("/", ""))
    script.write_text(
        f'CREATE STREAM "t{HOSTILE}" ("k{HOSTILE}" STRING, at INT) TIMESTAMP BY at'
        f" FROM csv OPTIONS (path 'in{C1}{BIDI}.csv');\n"
        f'REGISTER QUERY "q{HOSTILE}" AS SELECT "k{HOSTILE}" FROM "t{HOSTILE}" WHERE "k{HOSTILE}" <> \'{HOSTILE}\';\n'
        "SHOW STREAMS; SHOW QUERIES; EXPLAIN ALL; EXPLAIN DOT ALL; "
        f'DESCRIBE "t{HOSTILE}"; TRY SELECT "k{HOSTILE}" FROM "t{HOSTILE}";',
        encoding="utf-8",
    )
    return script


@pytest.mark.parametrize("output", ["table", "jsonl"])
@pytest.mark.parametrize("on_bad_row", ["fail", "skip"])
def test_a_run_prints_nothing_that_a_terminal_obeys(
    hostile: Path, output: str, on_bad_row: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["run", str(hostile), "--engine", "local", "--output", output, "--set", f"on_bad_row={on_bad_row}"]
    assert main(arguments) == (1 if on_bad_row == "fail" else 0)
    out, err = capfd.readouterr()
    assert harmless(out) and harmless(err)
    assert "\\u001b[31m" in out + err
    if output == "jsonl" and on_bad_row == "skip":
        (line,) = map(json.loads, out.splitlines())
        assert line["query"] == f"q{HOSTILE}" and line["row"] == {f"k{HOSTILE}": f"{HOSTILE}x"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "{script}", f"nothing{HOSTILE}.cql"],
        ["run", f"nothing{HOSTILE}\nforged.cql"],
        ["run", "{script}", "--set", f"on_bad_row={HOSTILE}"],
        ["run", "{script}", "--engine", HOSTILE],
        [HOSTILE],
        ["explain", "{script}", "--query", HOSTILE],
        *(["explain", "{script}", "--format", form] for form in ("text", "json", "dot", "mermaid")),
        ["state", f"nothing{HOSTILE}"],
    ],
)
def test_commands_print_nothing_that_a_terminal_obeys(
    hostile: Path, arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    main([argument.replace("{script}", str(hostile)) for argument in arguments])
    out, err = capfd.readouterr()
    assert out + err and harmless(out) and harmless(err)
    assert "\nforged" not in err
    if arguments[-1] == "json":
        assert f"k{HOSTILE}" in [column["name"] for each in json.loads(out)["operators"] for column in each["columns"]]


def test_a_caret_stands_under_what_is_wrong_whatever_comes_before(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "s.cql"
    script.write_text(f"CREATE STREAM s (k STRING, at INT) TIMESTAMP BY at; SELECT '{HOSTILE}', kk FROM s;")
    assert main(["check", str(script)]) == 1
    _, line, carets, *_ = capfd.readouterr().err.split("\n")
    assert line[carets.index("^") : carets.rindex("^") + 1] == "kk"


def test_a_terminal_shows_escapes_of_others_as_text() -> None:
    from rich.text import Text

    from cql.errors import Code, Diagnostic
    from cql.session import Listing
    from cql.source import NO_SPAN
    from repl.screen import drawn
    from repl.terminal_display import TerminalDisplay

    display = TerminalDisplay()
    with display.console.capture() as captured:
        display.line(HOSTILE)
        display.detail(HOSTILE)
        display.text(HOSTILE)
        display.listing(Listing((HOSTILE,), ((HOSTILE,),)))
        display.show(Text(HOSTILE))
        display.problem(CqlError([Diagnostic(Code.NO_FILE, HOSTILE, NO_SPAN, HOSTILE)]))
        display.problem(CqlError([Diagnostic(Code.NO_FILE, HOSTILE)], SourceText(HOSTILE, HOSTILE)))
    text = captured.get()
    assert harmless(text) and text.count("\\u202e") >= 8
    assert drawn([Text(HOSTILE)], 80)[0].count("\x1b") == 0


# Secrets

SECRETS = {
    "password": "hunter2",
    "kafka.sasl.jaas.config": 'LoginModule required username="ann" password="hunter2";',
    "url": "jdbc:postgresql://ann:hunter2@db:5432/shop?ssl=true",
    "uri": "jdbc:sqlserver://db:1433;user=ann;password=hunter2",
    "fs.s3a.secret.key": "hunter2",
    "awsAccessKey": "hunter2",
    "authToken": "hunter2",
}
SCRIPT = "CREATE STREAM s (k INT, at INT) TIMESTAMP BY at FROM kafka OPTIONS (topic 't', {options});"


def script_with(options: dict[str, str]) -> str:
    return SCRIPT.format(options=", ".join(f"{key} '{value}'" for key, value in options.items()))


def test_what_is_secret_is_told_by_its_name() -> None:
    secret = "password PASSWORD kafka.ssl.keystore.key ssl.key.password api_key sasToken credentials"
    plain = "path topic servers key.deserializer primaryKey partitionKey sasl.mechanism header compression user"
    assert all(map(is_secret, secret.split())) and not any(map(is_secret, plain.split()))


def test_a_catalog_shows_no_secret() -> None:
    catalog = Catalog()
    catalog.execute(script_with(SECRETS))
    catalog.execute(f"REGISTER QUERY q AS SELECT k FROM s INTO kafka OPTIONS (topic 'u', password '{'hunter2'}');")
    source = catalog.streams["s"].source
    assert source is not None and source.options == {"topic": "t", **SECRETS}, "whoever opens it has them"
    assert pickle.loads(pickle.dumps(source)) == source
    for text in (catalog.to_json(), repr(catalog), str(catalog), repr(source), str(source.model_dump())):
        assert "hunter2" not in text and "***" in text
    (statement,) = parse_script(SourceText("s.cql", script_with(SECRETS))).statements
    assert "hunter2" not in repr(statement)
    with pytest.raises(CqlError) as caught:
        Catalog.from_json(catalog.to_json().replace('"topic": "t"', '"topic": 7, "password": {"a": "hunter2"}'))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        script_with(SECRETS).replace("TIMESTAMP BY at", "TIMESTAMP BY nothing"),
        script_with(SECRETS).replace("STREAM", "STREEM"),
        script_with(SECRETS).replace("OPTIONS", "OPTION"),
        SCRIPT.format(options="password = 'hunter2' x"),
        SCRIPT.format(options="password hunter2, password x"),
        SCRIPT.format(options="'password' 'hunter2"),
        SCRIPT.format(options="password 'it''s hunter2', password 'x'"),
        SCRIPT.format(options="password\n'hunter2', password 'x'"),
    ],
)
def test_errors_show_no_secret(text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.cql").write_text(text)
    assert main(["check", str(tmp_path / "s.cql")]) == 1
    err = capfd.readouterr().err
    assert "s.cql:" in err and "hunter2" not in err


def test_messages_lose_their_secrets_and_keep_the_rest() -> None:
    assert without_secrets("no suitable driver for jdbc:db://ann:hunter2@h/x") == (
        "no suitable driver for jdbc:db://***@h/x"
    )
    for plain in ("unexpected token: 'x'", "http://h:80/a@b", "the column password is no INT", "h:9092,i:9092"):
        assert without_secrets(plain) == plain
    assert shown_options("csv", {"path": "s3a://key:secret@bucket/in", "header": "true"}) == {
        "path": "s3a://***@bucket/in",
        "header": "true",
    }


@pytest.mark.parametrize("text", ["a", "a.b='", "OPTIONS (", "://a:", "'", ", a ", "password='x' ", "a ", "(", "'a"])
def test_secrets_are_found_in_time_that_grows_with_the_text(text: str) -> None:
    def seconds(times: int) -> float:
        started = time.process_time()
        secret_places(f"a   {text * times}")
        return time.process_time() - started

    seconds(100)
    assert seconds(20_000) < 40 * max(seconds(2_000), 0.005)


def test_another_password_is_the_same_source_to_a_checkpoint() -> None:
    names = set()
    for password in ("hunter2", "hunter3"):
        catalog = Catalog()
        catalog.execute(script_with({"password": password}))
        names.add(source_name(catalog.streams["s"]))
    assert len(names) == 1


def test_the_history_of_the_shell_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from repl.editor import _history, history_path

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    _history()
    assert os.stat(history_path()).st_mode & 0o077 == 0
    assert External(format="csv", options={}).options == {}
