"""Physical plans: ids, sharing, partitioning, bounds on state, chains, JSON."""

from __future__ import annotations

import itertools

import pytest

import cql
from cql.errors import Code, CqlError
from planner import operators as op
from planner.chains import lower_envelope
from planner.network import Network
from planner.plan import Plan, combine, compile_query

STREAMS = """
CREATE STREAM S1 (A INT, B INT, T INT) TIMESTAMP BY T;
CREATE STREAM S2 (A INT, C INT, T INT) TIMESTAMP BY T;
CREATE STREAM S3 (A INT, D INT, T INT) TIMESTAMP BY T;
CREATE RELATION R (A INT, name STRING);
"""

JOIN = "SELECT * FROM S1 [Rows 1000], S2 [Range 2 Minutes] WHERE S1.A = S2.A AND S1.A > 10 AND S1.B < 20"
DRAWN_JOIN = "SELECT * FROM S1 [Rows 1000] JOIN S2 [Range 2 Minutes] ON S1.A = S2.A WHERE S1.A > 10 AND S1.B < 20"
LARGEST = "SELECT A, MAX(B) FROM S1 [Rows 200] GROUP BY A"
FILTERS_STAY = frozenset({"push_filter_below_join", "push_condition_below_join", "filter_into_join"})
"""Without these rules the select stays above the join, as the thesis draws it."""


@pytest.fixture
def catalog() -> cql.Catalog:
    made = cql.Catalog()
    made.execute(STREAMS)
    return made


def network(catalog: cql.Catalog, **queries: str) -> Plan:
    return combine(compile_query(name, cql.bind(text, catalog)) for name, text in queries.items())


def ids(plan: Plan) -> dict[str, set[str]]:
    return {
        "operators": {o.id for o in plan.operators},
        "queues": {q.id for q in plan.queues},
        "synopses": {s.id for s in plan.synopses},
        "stores": {s.id for s in plan.stores},
    }


# ------------------------------------------------------------------------------------------- the thesis's figures


def test_figure_2_2_has_four_synopses(catalog: cql.Catalog) -> None:
    plan = combine([compile_query("q", cql.bind(DRAWN_JOIN, catalog), share=False, disabled=FILTERS_STAY)])
    assert sorted(o.kind for o in plan.operators) == [
        "binary-join", "output", "select", "seq-window", "seq-window", "source", "source",
    ]  # fmt: skip
    assert sorted(s.role for s in plan.synopses) == ["left", "right", "window", "window"]
    assert len(plan.stores) == 4


def test_figure_2_3_shares_the_stores(catalog: cql.Catalog) -> None:
    plan = combine(
        [
            compile_query("q1", cql.bind(DRAWN_JOIN, catalog), disabled=FILTERS_STAY),
            compile_query("q2", cql.bind(LARGEST, catalog), disabled=FILTERS_STAY),
        ]
    )
    stubs = {len(store.stubs): store for store in plan.stores}
    assert stubs[4].kind == "log"
    assert [s.split("/")[1] for s in stubs[4].stubs] == ["window", "left", "window", "input"]
    assert [s.split("/")[1] for s in stubs[2].stubs] == ["window", "right"]
    assert [s.split("/")[1] for s in stubs[1].stubs] == ["groups"]


# --------------------------------------------------------------------------------------------------------- ids


def test_recompiling_gives_equal_plans() -> None:
    plans = []
    for _ in range(2):
        catalog = cql.Catalog()
        catalog.execute(STREAMS)
        plans.append(network(catalog, q1=JOIN, q2=LARGEST))
    assert plans[0] == plans[1]


def test_names_and_layout_do_not_enter_the_ids(catalog: cql.Catalog) -> None:
    first = network(catalog, q="SELECT A AS x, COUNT(*) AS n FROM S1 [Range 5] GROUP BY A")
    second = network(catalog, q="select y.a, count(*) from s1 [range 5 seconds] as y group by y.a")
    assert ids(first) == ids(second)


def test_adding_and_dropping_a_query_changes_nothing_in_the_others(catalog: cql.Catalog) -> None:
    texts = {
        "a": JOIN, "b": LARGEST, "c": "SELECT S1.A FROM S1 [Range 1 Minute], S3 [Now] WHERE S1.A = S3.A",
        "d": "SELECT AVG(B) FROM S1 [Range 10 Slide 5]", "e": "SELECT A FROM S1 WHERE B > 3",
    }  # fmt: skip
    catalog.execute(";".join(f"REGISTER QUERY {name} AS {text}" for name, text in texts.items()))
    definitions = list(catalog.queries.values())
    alone = {d.name: ids(Network.of([d]).plan) for d in definitions}
    for order in itertools.permutations(definitions, 3):
        grown = Network.of(order[:2]).with_query(order[2])
        for each in order:
            assert ids(grown.plan.part(each.name)) == alone[each.name]
        assert grown.without(order[2].name).plan == Network.of(order[:2]).plan


def test_a_stream_of_another_schema_is_another_source() -> None:
    plans = []
    for kind in ("INT", "STRING"):
        catalog = cql.Catalog()
        catalog.execute(f"CREATE STREAM S (A {kind}, T INT) TIMESTAMP BY T")
        plans.append(network(catalog, q="SELECT A FROM S"))
    assert ids(plans[0])["operators"].isdisjoint(ids(plans[1])["operators"])


# ----------------------------------------------------------------------------------------------------- sharing


def test_equal_parts_of_different_queries_are_one(catalog: cql.Catalog) -> None:
    plan = network(
        catalog,
        a="SELECT A, COUNT(*) FROM S1 [Range 5] GROUP BY A",
        b="SELECT Istream(A, COUNT(*)) FROM S1 [Range 5] GROUP BY A",
    )
    assert [o.kind for o in plan.operators].count("aggregate") == 1
    shared = next(o for o in plan.operators if isinstance(o, op.Aggregate))
    assert plan.users[shared.id] == ("a", "b")


def test_equal_parts_of_one_query_are_one(catalog: cql.Catalog) -> None:
    plan = network(catalog, q="SELECT x.A FROM S1 [Range 5] AS x, S1 [Range 5] AS y WHERE x.A = y.A")
    assert [o.kind for o in plan.operators].count("seq-window") == 1


def test_windows_of_different_lengths_share_one_store(catalog: cql.Catalog) -> None:
    plan = network(
        catalog,
        a="SELECT A, MAX(B) FROM S1 [Range 5] GROUP BY A",
        b="SELECT A, MAX(B) FROM S1 [Range 50 Slide 10] GROUP BY A",
        c="SELECT S1.A FROM S1 [Range 500], S2 [Now] WHERE S1.A = S2.A",
    )
    logs = [store for store in plan.stores if store.kind == "log" and "source" in store.rows_of]
    assert sorted(len(store.stubs) for store in logs) == [2, 5], (
        "what slides moves its tuples and has a store of its own"
    )


def test_windows_partitioned_by_different_keys_do_not_share(catalog: cql.Catalog) -> None:
    plan = network(
        catalog,
        a="SELECT A, MAX(B) FROM S1 [Range 5] GROUP BY A",
        b="SELECT B, MAX(A) FROM S1 [Range 5] GROUP BY B",
    )
    assert len([store for store in plan.stores if store.kind == "log"]) == 2


def test_a_filter_below_a_window_ends_sharing(catalog: cql.Catalog) -> None:
    plan = network(
        catalog,
        a="SELECT A, MAX(B) FROM S1 [Range 5] GROUP BY A",
        b="SELECT A, MAX(B) FROM S1 [Range 5] WHERE B > 3 GROUP BY A",
    )
    assert len([store for store in plan.stores if store.kind == "log"]) == 2


def test_without_sharing_every_synopsis_has_its_own_store(catalog: cql.Catalog) -> None:
    texts = {"a": JOIN, "b": JOIN, "c": LARGEST}
    plan = combine(compile_query(n, cql.bind(q, catalog), share=False) for n, q in texts.items())
    assert all(len(store.stubs) == 1 for store in plan.stores)
    assert all(len(users) == 1 for users in plan.users.values())


# ----------------------------------------------------------------------------------------------- partitioning

PLACES = [
    ("SELECT A, COUNT(*) FROM S1 [Range 5] GROUP BY A", {"hash-0"}, None),
    ("SELECT S1.A FROM S1 [Range 5], S2 [Range 5] WHERE S1.A = S2.A", {"hash-0"}, None),
    ("SELECT A, COUNT(*) FROM S1 [Partition By A Rows 3] GROUP BY A", {"hash-0"}, None),
    ("SELECT B, COUNT(*) FROM S1 [Partition By A Rows 3] GROUP BY B", {"hash-0", "hash-1"}, None),
    ("SELECT COUNT(*) FROM S1 [Range 5]", {"single-0"}, "an aggregate without GROUP BY is over all rows"),
    ("SELECT * FROM S1 [Rows 5]", {"single-0"}, "[Rows 5] counts the elements of the whole stream"),
    (
        "SELECT A, COUNT(*) AS n FROM S1 [Range 5] GROUP BY A ORDER BY n DESC LIMIT 3",
        {"hash-0", "single-1"},
        "the first rows of all can only be told in one place",
    ),
    (
        "SELECT S1.A FROM S1 [Range 5], S2 [Range 5] WHERE S1.A < S2.A",
        {"single-0"},
        "a join without an equality has no keys to split by",
    ),
    ("SELECT A FROM S1 WHERE B > 1", set(), None),
]


@pytest.mark.parametrize(("query", "fragments", "reason"), PLACES)
def test_where_operators_run(query: str, fragments: set[str], reason: str | None, catalog: cql.Catalog) -> None:
    plan = network(catalog, q=query)
    assert {o.fragment for o in plan.operators} - {"source"} == fragments
    reasons = {o.reason for o in plan.operators if o.placement == "single"}
    assert reason is None or reason in reasons
    assert all(o.reason for o in plan.operators if o.placement == "single")


def test_inputs_of_an_operator_arrive_at_its_level() -> None:
    catalog = cql.Catalog()
    catalog.execute(STREAMS)
    query = """SELECT x.A, y.D FROM (SELECT S1.B AS A FROM S1 [Range 5], S2 [Range 5] WHERE S1.A = S2.A) AS x,
               S3 [Range 5] AS y WHERE x.A = y.A"""
    plan = network(catalog, q=query)
    for operator in plan.operators:
        for edge in operator.inputs:
            below = plan.by_id[edge.operator]
            if edge.route == "local" and below.placement != "source":
                assert (below.placement, below.level) == (operator.placement, operator.level)


# ----------------------------------------------------------------------------------------------------- bounds

BOUNDS = [
    ("SELECT A, COUNT(*) FROM S1 [Range 5] GROUP BY A", set()),
    ("SELECT S1.A FROM S1 [Rows 5], S2 [Range 5] WHERE S1.A = S2.A", set()),
    ("SELECT S1.A FROM S1, S2 [Range 5] WHERE S1.A = S2.A", {("left", "stream")}),
    ("SELECT S1.A FROM S1, S2 WHERE S1.A = S2.A", {("left", "stream"), ("right", "stream")}),
    ("SELECT DISTINCT A FROM S1", {("counts", "keys")}),
    ("SELECT A, SUM(B) FROM S1 GROUP BY A", {("groups", "keys")}),
    ("SELECT SUM(B), MAX(B) FROM S1", set()),
    ("SELECT * FROM S1 [Partition By A Rows 2]", {("window", "keys")}),
    ("SELECT * FROM S1 [Partition By A Rows 2 Range 10]", set()),
    ("SELECT S1.A, R.name FROM S1 [Now], R WHERE S1.A = R.A", set()),
    ("SELECT A FROM S1 WHERE B > 1", set()),
]


@pytest.mark.parametrize(("query", "growing"), BOUNDS)
def test_state_without_a_bound_is_reported(query: str, growing: set[tuple[str, str]], catalog: cql.Catalog) -> None:
    plan = network(catalog, q=query)
    assert {(g.synopsis.split("/")[-1], g.growth) for g in plan.growing} == growing


def test_unbounded_state_can_be_refused(catalog: cql.Catalog) -> None:
    catalog.execute("SET unbounded_state = refuse; REGISTER QUERY q AS SELECT S1.A FROM S1, S2 WHERE S1.A = S2.A")
    with pytest.raises(CqlError) as caught:
        Network.of_catalog(catalog)
    diagnostic = caught.value.diagnostics[0]
    assert diagnostic.code is Code.UNBOUNDED_STATE
    assert "binary-join on S1.A = S2.A" in diagnostic.message
    assert "windows" in (diagnostic.hint or "")


# ----------------------------------------------------------------------------------------------------- chains


@pytest.mark.parametrize(
    ("costs", "selectivities", "chains"),
    [
        # The two examples of the thesis, section 2.3.2: one unit of time for a batch at each operator.
        ([1, 5], [0.2, 0], [(0, 1, 0.8), (1, 2, 0.2)]),
        ([1, 1 / 0.9, 1 / 0.9], [0.9, 1, 0], [(0, 3, 1 / 3)]),
        # A good operator behind a poor one pulls it into its chain.
        ([1, 1], [1, 0], [(0, 2, 0.5)]),
        # Operators that multiply elements are run through to where it pays.
        ([1, 1], [2, 0], [(0, 2, 1 / 3)]),
        ([1], [0], [(0, 1, 1.0)]),
        ([], [], []),
    ],
)
def test_lower_envelope(costs: list[float], selectivities: list[float], chains: list[tuple[int, int, float]]) -> None:
    found = lower_envelope(costs, selectivities)
    assert [(s.first, s.last) for s in found] == [(first, last) for first, last, _ in chains]
    assert [s.slope for s in found] == pytest.approx([slope for _, _, slope in chains])


def test_slopes_never_rise_along_a_path() -> None:
    steps = [0.1, 0.5, 1.0, 2.0]
    for selectivities in itertools.product([0.1, 0.5, 1.0, 2.0], repeat=3):
        slopes = [s.slope for s in lower_envelope([*steps[:3], 1.0], [*selectivities, 0.0])]
        assert slopes == sorted(slopes, reverse=True)


def test_every_path_to_an_output_is_cut_into_chains(catalog: cql.Catalog) -> None:
    plan = network(catalog, q=JOIN, r=LARGEST)
    assert [(path.query, plan.by_id[path.source].table) for path in plan.paths] == [  # type: ignore[attr-defined]
        ("q", "S1"), ("q", "S2"), ("r", "S1"),
    ]  # fmt: skip
    for path in plan.paths:
        steps = [step for chain in path.chains for step in chain.operators]
        assert plan.by_id[steps[0]].inputs[0].operator == path.source or path.source in {
            edge.operator for edge in plan.by_id[steps[0]].inputs
        }
        assert plan.by_id[steps[-1]].kind == "output"  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------ JSON and API


def test_a_plan_survives_json(catalog: cql.Catalog) -> None:
    plan = network(catalog, q=JOIN, r=LARGEST)
    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_json(plan.to_json()).explain() == plan.explain()


@pytest.mark.parametrize("text", ["{", "{}", '{"version": 99}'])
def test_what_is_not_a_plan_is_refused(text: str) -> None:
    with pytest.raises(CqlError):
        Plan.from_json(text)


def test_compile_reports_mistakes_with_their_place(catalog: cql.Catalog) -> None:
    with pytest.raises(CqlError) as caught:
        cql.compile("SELECT prise FROM S1", catalog)
    assert "1:8: E202" in str(caught.value)


@pytest.mark.parametrize("form", ["text", "json", "dot", "mermaid"])
def test_every_form_of_explain(form: str, catalog: cql.Catalog) -> None:
    plan = network(catalog, q=JOIN, r=LARGEST)
    whole, part = plan.explain(form), plan.explain(form, "R")
    assert len(part) < len(whole)
    assert "binary-join" in whole and "binary-join" not in part


def test_an_unknown_form_is_refused(catalog: cql.Catalog) -> None:
    with pytest.raises(CqlError, match="no form 'svg'"):
        network(catalog, q=JOIN).explain("svg")
