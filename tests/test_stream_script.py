"""STREAM's script format: which texts are taken for one, what they mean, and what is said of bad ones."""

from dataclasses import replace
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cql import ast
from cql.ast.rewrite import rewrite
from cql.errors import Code, render
from cql.parsing import parse_query, parse_script, parse_statement
from cql.parsing.parser import ParsedScript
from cql.parsing.stream_script import DIRECTIVES, is_stream_script, parse_stream_script
from cql.source import SourceText


def read(text: str) -> ParsedScript:
    return parse_script(SourceText("net.script", dedent(text)))


def statements(text: str) -> list[ast.Statement]:
    """The statements of a script without errors, after the setting that every script starts with."""
    script = read(text)
    assert not script.diagnostics, rendered(script)
    return list(script.statements[1:])


def rendered(script: ParsedScript) -> str:
    return "\n".join(render(diagnostic, script.source) for diagnostic in script.diagnostics)


def complaints(text: str) -> str:
    return rendered(read(text))


def written(script: ParsedScript, node: ast.Node) -> str:
    return script.source.text[node.span.start : node.span.end]


# ------------------------------------------------------------------------------------------------ recognition


@pytest.mark.parametrize(
    "text",
    [
        "table : register stream S (A integer);",
        "table: register stream S (A integer);",
        "TABLE:register stream S (A integer);",
        "\n\n# traffic on three links\n#\n  table\t: register stream S (A integer);",
        "-- a comment\nquery : select * from S;",
        "\ufefftable : register stream S (A integer);",
        "\r\nvquery : select * from S;\r\n",
        "tabel : register stream S (A integer);",
    ],
)
def test_a_text_that_starts_with_a_directive_is_a_stream_script(text: str) -> None:
    assert is_stream_script(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# table : register stream S (A integer);",
        "select * from S;",
        "REGISTER STREAM S (A INTEGER);",
        "select a from S; -- later\nquery : select * from S;",
        "table",
        "table S (A integer);",
        "query :: select",
        "remark: this is prose",
    ],
)
def test_other_texts_are_not(text: str) -> None:
    assert not is_stream_script(text)


# ---------------------------------------------------------------------------------------------------- meaning


def test_a_script_becomes_ordinary_statements() -> None:
    script = read(
        """\
        # Traffic of a customer
        table  : register stream C (pid integer, size integer);
        source : data/C.dat

        vquery : select pid from C [Rows 2];
        vtable : register relation Recent (id integer);

        query  : select * from Recent;
        dest   : out/recent
        """
    )
    assert not script.diagnostics
    path = ast.Name("path")
    assert script.statements == (
        parse_statement("SET empty_aggregate = 'stream'"),
        parse_statement("REGISTER STREAM C (pid integer, size integer) FROM stream OPTIONS (path 'data/C.dat')"),
        replace(
            parse_statement("CREATE VIEW Recent (id) AS select pid from C [Rows 2]"),
            kind=ast.ObjectKind.RELATION,
            types=(ast.TypeName("INTEGER"),),
        ),
        ast.RegisterQuery(
            ast.Name("q1"),
            parse_query("select * from Recent"),
            sink=ast.SinkSpec(ast.Name("stream"), (ast.Option(path, ast.String("out/recent")),)),
        ),
    )


def test_spans_point_into_the_script() -> None:
    script = read(
        """\
        table : register stream S (A integer);
        source : S.dat
        query : select A from S where A > 5;
        dest : out
        """
    )
    _, table, query = script.statements
    assert isinstance(table, ast.RegisterTable) and isinstance(query, ast.RegisterQuery)
    assert written(script, table) == "table : register stream S (A integer);\nsource : S.dat"
    assert written(script, table.name) == "S"
    assert written(script, table.columns[0]) == "A integer"
    assert table.source and written(script, table.source) == "S.dat"
    assert written(script, query) == "query : select A from S where A > 5;\ndest : out"
    assert written(script, query.name) == "query"
    assert written(script, query.query) == "select A from S where A > 5"


def test_queries_are_numbered_in_order_and_need_no_dest() -> None:
    first, second, third = statements(
        """\
        query : select * from S;
        query : select * from T;
        dest : t.out
        query : select * from U;
        """
    )
    queries = [q for q in (first, second, third) if isinstance(q, ast.RegisterQuery)]
    assert [q.name.text for q in queries] == ["q1", "q2", "q3"]
    assert [q.sink is None for q in queries] == [True, False, True]


def test_a_text_goes_on_until_the_next_directive() -> None:
    (query,) = statements(
        """\
        query :
            Istream (select A, count(*)   # per A
            # over the last minute
            from S [Range 1 Minute]
            group by A)
        dest :
            # relative to the working directory
            out/counts.dat   # the newest
        """
    )
    assert isinstance(query, ast.RegisterQuery) and query.sink
    assert query.query == parse_query("Istream(Select A, count(*) From S [Range 1 Minute] Group By A)")
    assert query.sink.options[0].value == ast.String("out/counts.dat")


@pytest.mark.parametrize(
    "line", ["dest : my out.dat", "dest:my out.dat;", "DEST :\t'my out.dat' ;", 'dest : "my out.dat"']
)
def test_a_path_is_the_rest_of_its_line(line: str) -> None:
    (query,) = statements(f"query : select * from S\n{line}\n")
    assert isinstance(query, ast.RegisterQuery) and query.sink
    assert query.sink.options[0].value == ast.String("my out.dat")


def test_text_in_double_quotes_is_a_string() -> None:
    (query,) = statements('query : select * from S where A > 5 and D = "te""st";')
    assert isinstance(query, ast.RegisterQuery)
    assert query.query == parse_query("select * from S where A > 5 and D = 'te\"st'")


@pytest.mark.parametrize(
    ("bare", "meant"),
    [
        ("S1 union S2", "S1 UNION ALL S2"),
        ("S1 except S2", "S1 EXCEPT ALL S2"),
        ("Istream(S1 union S2)", "Istream(S1 UNION ALL S2)"),
        ("select * from (S1 union S2 except S3) as S", "select * from (S1 UNION ALL S2 EXCEPT ALL S3) as S"),
        (
            "select * from S where A in (select A from (R1 union R2) as R)",
            "select * from S where A in (select A from (R1 UNION ALL R2) as R)",
        ),
    ],
)
def test_set_operations_are_bag_operations(bare: str, meant: str) -> None:
    (query,) = statements(f"query : {bare};")
    assert isinstance(query, ast.RegisterQuery)
    assert query.query == parse_query(meant)


def test_the_types_of_stream_are_read() -> None:
    (table,) = statements(
        "table : register Relation R (A int, B INTEGER, C float, D real, E byte, F char (9));\nsource : R.dat"
    )
    assert isinstance(table, ast.RegisterTable)
    assert table.kind is ast.ObjectKind.RELATION
    assert [column.type.word for column in table.columns] == [
        "INT",
        "INTEGER",
        "FLOAT",
        "REAL",
        "BYTE",
        "CHAR",
    ]
    assert table.columns[-1].type.parameters == (9,)


# ----------------------------------------------------------------------------------------------------- errors


def test_a_source_needs_a_table() -> None:
    assert complaints("source : S.dat\nquery : select * from S;") == dedent(
        """\
        net.script:1:1: E107: this source belongs to no table
          source : S.dat
          ^^^^^^
          hint: it follows its table: table : register stream S (A integer);"""
    )


def test_a_table_needs_a_source() -> None:
    assert complaints("table : register stream S (A integer);\nquery : select * from S;") == dedent(
        """\
        net.script:1:1: E107: this table has no source
          table : register stream S (A integer);
          ^^^^^
          hint: say where its rows are on the next line: source : path"""
    )


def test_a_view_needs_its_name_and_its_query() -> None:
    text = """\
        vquery : select * from S;
        query : select * from S;
        vtable : register stream V (A integer);
        """
    assert complaints(text) == dedent(
        """\
        net.script:1:1: E107: this vquery has no vtable
          vquery : select * from S;
          ^^^^^^
          hint: name it on the next line: vtable : register relation V (A integer);
        net.script:3:1: E107: this vtable belongs to no vquery
          vtable : register stream V (A integer);
          ^^^^^^
          hint: it follows the query that it names: vquery : select * from S;"""
    )


def test_an_unknown_directive_is_guessed_and_its_partner_does_not_complain_too() -> None:
    assert complaints("table : register stream S (A integer);\nsorce : S.dat") == dedent(
        """\
        net.script:2:1: E107: a STREAM script has no directive 'sorce'
          sorce : S.dat
          ^^^^^
          hint: did you mean source?"""
    )


def test_a_directive_unlike_any_other_is_shown_the_list() -> None:
    assert complaints("query : select * from S;\nwindow : 5") == dedent(
        """\
        net.script:2:1: E107: a STREAM script has no directive 'window'
          window : 5
          ^^^^^^
          hint: its directives are table, source, query, dest, vquery and vtable"""
    )


@pytest.mark.parametrize("word", DIRECTIVES)
def test_a_directive_needs_a_text(word: str) -> None:
    before = {
        "source": "table : register stream S (A integer);",
        "dest": "query : select * from S;",
        "vtable": "vquery : select * from S;",
    }.get(word, "")
    after = {"table": "source : S.dat", "vquery": "vtable : register stream V (A integer);"}.get(word, "")
    script = read(f"{before}\n{word} : # nothing\n{after}")
    (diagnostic,) = script.diagnostics
    assert diagnostic.code is Code.STREAM_SCRIPT
    assert diagnostic.message == f"this {word} is empty"
    assert script.source.text[slice(*diagnostic.span)] == word


def test_a_text_of_the_wrong_kind_is_reported_whole() -> None:
    text = """\
        table : select * from S;
        source : S.dat
        query : register stream S (A integer);
        vquery : set a = 1;
        vtable : create view V as select * from S;
        """
    assert complaints(text) == dedent(
        """\
        net.script:1:9: E107: the directive table takes REGISTER STREAM or REGISTER RELATION
          table : select * from S;
                  ^^^^^^^^^^^^^^^
          hint: write register stream name (column type, ..)
        net.script:3:9: E107: the directive query takes a query
          query : register stream S (A integer);
                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          hint: it starts with select, istream, dstream or rstream, or combines two names by union or except
        net.script:4:10: E107: the directive vquery takes a query
          vquery : set a = 1;
                   ^^^^^^^^^
          hint: it starts with select, istream, dstream or rstream, or combines two names by union or except
        net.script:5:10: E107: the directive vtable takes REGISTER STREAM or REGISTER RELATION
          vtable : create view V as select * from S;
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          hint: write register stream name (column type, ..)"""
    )


def test_a_table_does_not_name_a_source_of_its_own() -> None:
    text = "table : register stream S (A integer) from csv options (path 'S.csv');\nsource : S.dat"
    assert complaints(text) == dedent(
        """\
        net.script:1:39: E107: a table does not say where its rows come from
          table : register stream S (A integer) from csv options (path 'S.csv');
                                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
          hint: leave this out; the path stands in a line source : path"""
    )


def test_a_directive_holds_one_statement() -> None:
    assert complaints("query : select * from S; select * from T;") == dedent(
        """\
        net.script:1:26: E107: the directive query takes one statement, and a second one begins
          query : select * from S; select * from T;
                                   ^^^^^^^^^^^^^^^
          hint: put it behind a directive of its own: query : .."""
    )


def test_a_path_stays_on_its_line() -> None:
    assert complaints("query : select * from S\ndest : S.out\nquery select * from T") == dedent(
        """\
        net.script:3:1: E107: the directive dest takes the path of a file, on one line
          query select * from T
          ^^^^^^^^^^^^^^^^^^^^^
          hint: a directive is a word and a colon; a comment starts with #"""
    )


def test_syntax_errors_of_a_query_keep_their_place_and_do_not_hide_others() -> None:
    text = """\
        table : register stream S (A integer;
        source : S.dat
        query : select * from S [Rows];
        query : select A from S;
        """
    script = read(text)
    assert [(d.code, script.source.position(d.span.start)) for d in script.diagnostics] == [
        (Code.UNCLOSED, (1, 27)),
        (Code.SYNTAX, (3, 30)),
    ]
    (query,) = [s for s in script.statements if isinstance(s, ast.RegisterQuery)]
    assert query.name.text == "q2"


@pytest.mark.parametrize("expression", ["a" + " + a" * 5000, "(" * 300 + "a" + ")" * 300])
def test_nesting_without_end_is_an_error_like_any_other(expression: str) -> None:
    script = read(f"query : select {expression} from S;")
    assert [diagnostic.code for diagnostic in script.diagnostics] == [Code.TOO_DEEP]


PIECES = [
    *(f"{word} :" for word in DIRECTIVES),
    "tabel :",
    "register stream S (A integer)",
    "select * from S [Rows 2]",
    "S1 union S2",
    "S.dat",
    "'",
    '"',
    "# note",
    "--",
    "(",
    ";",
    "\n",
    "\r\n",
    "\ufeff",
    "\x00",
    "é",
    ":",
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=25).map(" ".join))
def test_no_text_raises_and_every_place_lies_within_it(text: str) -> None:
    for script in (parse_script(SourceText("any", text)), parse_stream_script(SourceText("any", text))):
        for place in [d.span for d in script.diagnostics] + [s.span for s in script.statements]:
            assert 0 <= place.start <= place.end <= len(text)
        assert len(rendered(script).splitlines()) >= len(script.diagnostics)


# -------------------------------------------------------------------------------------------- tree rewriting


def test_rewriting_offers_every_node_children_first_and_keeps_what_does_not_change() -> None:
    query = parse_query("select case when a = 1 then b else c end from S [Partition By k Rows 2] where d in (1, e)")
    seen: list[str] = []

    def note(node: ast.Node) -> ast.Node:
        seen.append(node.text if isinstance(node, ast.Name) else type(node).__name__)
        return node

    assert rewrite(query, note) is query
    assert set("abcdekS") <= set(seen)
    assert seen.index("a") < seen.index("Case") < seen.index("SelectItem") < seen.index("Select")


def test_rewriting_replaces_nodes_anywhere() -> None:
    query = parse_query("select case when a = 1 then a end from S [Partition By a Rows 2]")

    def rename(node: ast.Node) -> ast.Node:
        return replace(node, text="z") if isinstance(node, ast.Name) and node.text == "a" else node

    assert rewrite(query, rename) == parse_query("select case when z = 1 then z end from S [Partition By z Rows 2]")
