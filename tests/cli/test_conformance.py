"""``streamfactory conformance``: from a type to a report and a status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.proving.commands import Outcome

ROOT = Path(__file__).parents[2]
ONE = "a_factory_pickles"

MODULE = """
from streamfactory.backends import memory
from streamfactory.backends.memory.harness import MemoryHarness
from streamfactory.spi import Backend, hookimpl

class Good(MemoryHarness):
    pass

class Torn(MemoryHarness):
    def write(self, partition, numbers):
        super().write(partition, numbers[:-1])

class Broken(MemoryHarness):
    def __init__(self, folder):
        raise RuntimeError("no medium")

class Quitting(MemoryHarness):
    def properties(self):
        raise SystemExit("no more")

class Half:
    def create(self, partitions): ...

class Misspelt(MemoryHarness):
    sample_header = ()

    def trunkate(self, partition, messages): ...

    def helper(self): ...

class Private(MemoryHarness):
    def properties(self):
        found = super().properties()
        moved = {k.replace(".memory.", ".private."): v for k, v in found.items()}
        return {**moved, "streamType": "private"}

    @staticmethod
    def plugin():
        return Plugin()

class Plugin:
    @hookimpl
    def streamfactory_backend(self):
        found = memory.streamfactory_backend()
        return Backend(
            name="private", doc="Nobody else's.", spi_level=1, options=found.options,
            consumer_factory=found.consumer_factory,
            producer_factory=found.producer_factory,
        )

class Raw(MemoryHarness):
    def raw_read(self, partition):
        assert len(self.visible()[partition]) == 20_000

from streamfactory.conformance.specimens import upper

class Shout(upper.UpperHarness):
    @staticmethod
    def plugin():
        return upper

class Mumble(Shout):
    def numbers(self, rows):
        return super().numbers(rows)[1:]

number = 3
"""


@pytest.fixture
def harnesses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of harnesses, which this test alone can import."""
    name = f"harnesses_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.fixture
def waivers(tmp_path: Path) -> Callable[..., str]:
    def write(case: str, expires: str) -> str:
        path = tmp_path / "waivers.toml"
        path.write_text(
            f"[[waiver]]\ncase = '{case}'\nreason = 'issue 7'\nexpires = {expires}\n"
        )
        return str(path)

    return write


@pytest.mark.long("the whole kit, which test_suite.py runs on memory, too")
def test_the_whole_kit_passes_on_memory_as_the_pages_say(
    program: Callable[..., Outcome],
) -> None:
    outcome = program("conformance", "memory", "--json")
    found = outcome.json
    assert (outcome.status, outcome.err, found["ok"]) == (0, "", True)
    assert found["seconds"] < 120
    words = [[c["case"], c["rule"], c["outcome"], c["reason"]] for c in found["cases"]]
    path = ROOT / "docs" / "support" / "memory.json"
    shown = json.loads(path.read_text(encoding="utf-8"))["cases"]
    assert words == [[c["case"], c["rule"], c["outcome"], c["reason"]] for c in shown]


@pytest.mark.slow("the whole kit")
def test_quick_names_what_it_leaves_out(streamfactory: Callable[..., Outcome]) -> None:
    outcome = streamfactory("conformance", "memory", "--quick", "--json")
    assert outcome.status == 0
    left_out = "slow: left out by --quick"
    reasons = [case["reason"] for case in outcome.json["cases"]]
    assert left_out in reasons
    # The goal is 5 s, which the summary prints; a loaded machine may take more.
    assert outcome.json["seconds"] < 60


def test_text_lists_cases_and_ends_with_the_sum(
    streamfactory: Callable[..., Outcome],
) -> None:
    outcome = streamfactory("conformance", "memory", "--only", ONE)
    first, empty, last = outcome.out.splitlines()
    assert outcome.status == 0
    assert first.startswith(f"passed   R11  {ONE}  ")
    assert empty == ""
    assert last.startswith("memory: 1 passed in ")
    assert last.endswith(" s (seed 0)")
    assert outcome.err == ""


def test_only_takes_names_patterns_and_rules(
    streamfactory: Callable[..., Outcome],
) -> None:
    words = ("conformance", "memory", "--json")
    by_rule = streamfactory(*words, "--only", "m1").json["cases"]
    assert {case["rule"] for case in by_rule} == {"M1"}
    by_letter = streamfactory(*words, "--only", "m?").json["cases"]
    assert {case["rule"][0] for case in by_letter} == {"M"}
    assert len({case["rule"] for case in by_letter}) > 3
    both = streamfactory(*words, "--only", "m1", "--only", f"{ONE[:-3]}*").json["cases"]
    assert [c["case"] for c in both if c["rule"] != "M1"] == [ONE]
    assert len(both) == len(by_rule) + 1


def test_a_pattern_that_matches_nothing_is_a_mistake(
    streamfactory: Callable[..., Outcome],
) -> None:
    outcome = streamfactory("conformance", "memory", "--only", "a_factori*")
    assert (outcome.status, outcome.out) == (2, "")
    assert "no case matches 'a_factori*'; there are " in outcome.err


def test_a_failure_prints_all_details_and_ends_with_status_1(
    streamfactory: Callable[..., Outcome], harnesses: str
) -> None:
    case = "offsets_rise_and_nothing_is_missing"
    outcome = streamfactory(
        *("conformance", "memory", "--harness", f"{harnesses}:Torn"),
        *("--only", case, "--seed", "3"),
    )
    assert outcome.status == 1
    assert f"\nfailed: {case} (rule R1)\n  expected   Reading from " in outcome.out
    assert "\n  happened   messages of partition 0: expected " in outcome.out
    assert "\n  script     create(partitions=2)\n" in outcome.out
    assert "\n  usually    fetch_messages sorts, " in outcome.out
    again = f"--harness {harnesses}:Torn --seed 3 --only {case}\n"
    assert f"\n  run again  streamfactory conformance memory {again}" in outcome.out
    assert "memory: 1 failed in " in outcome.out


def test_what_builds_on_a_failure_is_not_tried(
    streamfactory: Callable[..., Outcome], harnesses: str
) -> None:
    words = ("--harness", f"{harnesses}:Torn", "--quick", "--json")
    outcome = streamfactory("conformance", "memory", *words)
    assert outcome.status == 1
    reasons = [str(case["reason"]) for case in outcome.json["cases"]]
    assert any(reason.startswith("not run: it builds on ") for reason in reasons)


@pytest.mark.slow("reads and writes thousands of rows")
def test_benchmark_measures_and_compares_with_the_raw_client(
    streamfactory: Callable[..., Outcome], harnesses: str
) -> None:
    words = ("conformance", "memory", "--benchmark", "--harness", f"{harnesses}:Raw")
    found = streamfactory(*words, "--json").json
    names = {(figure["name"], figure["unit"]) for figure in found["figures"]}
    assert names == {
        ("read", "rows/s"),
        ("read", "bytes/s"),
        ("raw client", "rows/s"),
        ("read by raw client", "times"),
        ("fetch of one row", "microseconds"),
        ("metadata of 1 partitions", "milliseconds"),
        ("metadata of 50 partitions", "milliseconds"),
        ("write", "rows/s"),
        ("write", "bytes/s"),
        ("commit", "milliseconds"),
    }
    assert all(figure["value"] > 0 for figure in found["figures"])


def test_a_harness_that_cannot_be_made_fails_the_case(
    streamfactory: Callable[..., Outcome], harnesses: str
) -> None:
    outcome = streamfactory(
        *("conformance", "memory", "--harness", f"{harnesses}:Broken", "--only", ONE)
    )
    assert outcome.status == 1
    happened = "the harness failed, not the backend: Broken.__init__ raised "
    assert f"\n  happened   {happened}RuntimeError: no medium\n" in outcome.out


def test_a_case_that_exits_ends_no_run(
    streamfactory: Callable[..., Outcome], harnesses: str
) -> None:
    words = ("--harness", f"{harnesses}:Quitting", "--only", ONE, "--only", "M1")
    outcome = streamfactory("conformance", "memory", *words)
    assert outcome.status == 1
    assert outcome.out.count(" raised SystemExit: no more\n") > 1


def test_a_harness_may_bring_its_backend(
    streamfactory: Callable[..., Outcome], harnesses: str
) -> None:
    path = f"{harnesses}:Private"
    words = ("--harness", path, "--only", ONE)
    outcome = streamfactory("conformance", "private", *words)
    assert outcome.status == 0
    assert outcome.out.splitlines()[-1].startswith("private: 1 passed in ")
    elsewhere = streamfactory("describe", "private")
    assert elsewhere.status == 3


def test_a_decoder_is_proved_by_its_harness(
    streamfactory: Callable[..., Outcome], harnesses: str
) -> None:
    words = ("conformance", "--decoder", "upper", "--quick", "--harness")
    good = streamfactory(*words, f"{harnesses}:Shout")
    assert good.status == 0
    assert "\npassed   D1   hostile_messages_never_raise " in good.out
    bad = streamfactory(*words, f"{harnesses}:Mumble")
    assert bad.status == 1
    again = f"streamfactory conformance --decoder upper --harness {harnesses}:Mumble"
    assert f"  run again  {again} --only good_messages_become_their_rows\n" in bad.out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "Give a stream TYPE, --decoder NAME, or --scheme NAME."),
        (
            ["memory", "--decoder", "raw"],
            "Give a stream TYPE, --decoder NAME, or --scheme NAME.",
        ),
        (
            ["--scheme", "env", "--decoder", "raw"],
            "Give a stream TYPE, --decoder NAME, or --scheme NAME.",
        ),
        (["--scheme", "env", "--benchmark"], "--benchmark is for stream types."),
        (["--decoder", "raw", "--config", "x"], "--config is for stream types."),
    ],
)
def test_one_thing_is_proved_at_a_time(
    streamfactory: Callable[..., Outcome], arguments: list[str], text: str
) -> None:
    outcome = streamfactory("conformance", *arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert (
        outcome.err == f"error: [usage] {text} (see streamfactory conformance --help)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (
            ["--decoder", "raw"],
            3,
            (
                "error: [no_harness] "
                "no harness is registered for 'raw'; write one, see "
                "help(streamfactory.conformance.harness), and name it in "
                'pyproject.toml under [project.entry-points."streamfactory.conformance'
                '.decoders"] as raw = "module:Class", or here with --harness '
                "module:Class\n"
            ),
        ),
        (
            ["memroy"],
            3,
            (
                "error: [unknown_plugin] "
                "unknown stream type 'memroy'; known are delta, file, flight, "
                "hudi, iceberg, kafka, memory, push, shm, socket, zeromq; "
                "did you mean 'memory'?\n"
            ),
        ),
        (
            ["memory", "--harness", "nowhere"],
            3,
            "error: [no_harness] 'nowhere' names no harness, wanted module:Class\n",
        ),
        (
            ["memory", "--harness", "no_such_module:X"],
            3,
            (
                "error: [broken_plugin] the harness no_such_module:X cannot be loaded: "
                "ModuleNotFoundError: No module named 'no_such_module'\n"
            ),
        ),
        (
            ["memory", "--harness", "MODULE:number"],
            3,
            (
                "error: [broken_plugin] the harness MODULE:number is no class; "
                "see help(streamfactory.conformance.harness)\n"
            ),
        ),
        (
            ["memory", "--harness", "MODULE:Misspelt"],
            3,
            (
                "error: [broken_plugin] the harness MODULE:Misspelt "
                "has an unknown attribute sample_header "
                "(did you mean sample_headers?); "
                "has an unknown public method trunkate (did you mean truncate?); "
                "see help(streamfactory.conformance.harness)\n"
            ),
        ),
        (
            ["memory", "--harness", "MODULE:Half"],
            3,
            (
                "error: [broken_plugin] "
                "the harness MODULE:Half has no properties, partitions, write, "
                "numbers, close; see help(streamfactory.conformance.harness)\n"
            ),
        ),
    ],
)
def test_what_cannot_be_proved_is_reported(
    streamfactory: Callable[..., Outcome],
    harnesses: str,
    arguments: list[str],
    status: int,
    text: str,
) -> None:
    given = [word.replace("MODULE", harnesses) for word in arguments]
    outcome = streamfactory("conformance", *given)
    assert (outcome.status, outcome.out) == (status, "")
    assert outcome.err == text.replace("MODULE", harnesses)


def test_a_type_without_a_harness_reports_what_to_write(
    program: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "lonely.py").write_text(
        "from dataclasses import replace\n"
        "from streamfactory.backends import memory\n"
        "from streamfactory.spi import hookimpl\n"
        "@hookimpl\n"
        "def streamfactory_backend():\n"
        "    return replace(memory.streamfactory_backend(), name='lonely')\n"
    )
    info = tmp_path / "lonely-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lonely\nVersion: 1.0")
    (info / "entry_points.txt").write_text(
        "[streamfactory.backends]\nlonely = lonely\n"
    )
    outcome = program("conformance", "lonely")
    assert (outcome.status, outcome.out) == (3, "")
    assert outcome.err == (
        "error: [no_harness] no harness is registered for 'lonely'; write one, see "
        "help(streamfactory.conformance.harness), and name it in pyproject.toml under "
        '[project.entry-points."streamfactory.conformance"] as '
        'lonely = "module:Class", or here with --harness module:Class\n'
    )


def test_a_harness_of_the_current_folder_is_found(
    program: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "mine.py").write_text(MODULE)
    outcome = program(
        *("conformance", "memory", "--harness", "mine:Good", "--only", ONE),
        PYTHONPATH=str(tmp_path / "here"),
        PYTHONSAFEPATH="1",
    )
    assert (outcome.status, outcome.err) == (0, "")


def test_config_goes_over_the_properties_of_the_harness(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(
        "[properties]\nstreamType = 'memory'\n'stream.memory.topic.nam' = 'x'\n"
    )
    words = ("conformance", "memory", "--config", "mine.toml", "--only", ONE)
    outcome = streamfactory(*words)
    assert outcome.status == 1
    assert "stream.memory.topic.nam: " in outcome.out
    assert "conformance memory --config mine.toml --only" in outcome.out


def test_config_of_another_type_is_refused(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "mine.properties").write_text("stream.type=kafka\n")
    outcome = streamfactory("conformance", "memory", "--config", "mine.properties")
    assert outcome.status == 2
    assert outcome.err == (
        "error: [config] mine.properties is a stream of type 'kafka', not 'memory'\n"
    )


IN_FORMS: dict[str, Callable[[str], bool]] = {
    "text": lambda report: report.splitlines()[-1].startswith("memory: 1 passed in "),
    "json": lambda report: json.loads(report)["counts"]["passed"] == 1,
    "junit": lambda report: ET.fromstring(report.encode())[0].get("tests") == "1",
    "markdown": lambda report: report.endswith(f"| R11 | `{ONE}` | passed |\n"),
}
"""Whether a report of a form has one case, which passed."""


@pytest.mark.parametrize("form", IN_FORMS)
def test_every_report_is_printed_or_stored(
    streamfactory: Callable[..., Outcome], tmp_path: Path, form: str
) -> None:
    words = ("conformance", "memory", "--only", ONE, "--report", form)
    printed = streamfactory(*words)
    stored = streamfactory(*words, "--output", "report")
    text = (tmp_path / "report").read_text()
    assert (printed.status, stored.status) == (0, 0)
    assert stored.out.splitlines()[-1].startswith("memory: 1 passed in ")
    assert IN_FORMS[form](printed.out), printed.out
    assert IN_FORMS[form](text), text


def test_a_report_that_cannot_be_stored_is_reported(
    streamfactory: Callable[..., Outcome],
) -> None:
    words = ("conformance", "memory", "--only", ONE, "--output", "no/where")
    outcome = streamfactory(*words)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == (
        "error: [config] "
        "the report 'no/where' cannot be written: No such file or directory\n"
    )


def test_a_waived_failure_is_printed_and_fine(
    streamfactory: Callable[..., Outcome], harnesses: str, waivers: Callable[..., str]
) -> None:
    words = ("conformance", "memory", "--harness", f"{harnesses}:Broken")
    known = waivers(ONE, "2999-12-31")
    outcome = streamfactory(*words, "--only", ONE, "--waivers", known)
    assert outcome.status == 0
    assert f"\nwaived: {ONE} (rule R11)\n  waiver     until 2999-12-31: issue 7\n" in (
        outcome.out
    )
    assert "memory: 1 waived in " in outcome.out


def test_an_expired_waiver_ends_with_status_1(
    streamfactory: Callable[..., Outcome], harnesses: str, waivers: Callable[..., str]
) -> None:
    words = ("conformance", "memory", "--harness", f"{harnesses}:Broken")
    known = waivers(ONE, "2020-12-31")
    outcome = streamfactory(*words, "--only", ONE, "--waivers", known)
    assert outcome.status == 1
    assert "  happened   the waiver expired on 2020-12-31 (issue 7); " in outcome.out


def test_a_stale_waiver_ends_with_status_1(
    streamfactory: Callable[..., Outcome], waivers: Callable[..., str]
) -> None:
    known = waivers(ONE, "2999-12-31")
    words = ("conformance", "memory", "--only", ONE, "--waivers", known)
    outcome = streamfactory(*words)
    assert outcome.status == 1
    assert "the waiver is stale: the case passes; take it out of the file" in (
        outcome.out
    )
    assert "usually" not in outcome.out


def test_a_waiver_of_a_case_that_was_not_chosen_is_left_alone(
    streamfactory: Callable[..., Outcome], waivers: Callable[..., str]
) -> None:
    known = waivers("closing_twice_is_fine", "2999-12-31")
    words = ("conformance", "memory", "--only", ONE, "--waivers", known)
    assert streamfactory(*words).status == 0


def test_bad_waivers_end_with_status_2(
    streamfactory: Callable[..., Outcome], waivers: Callable[..., str]
) -> None:
    known = waivers("a_factory_pikles", "2999-12-31")
    outcome = streamfactory("conformance", "memory", "--waivers", known)
    assert (outcome.status, outcome.out) == (2, "")
    assert (
        "'a_factory_pikles' is no case of the kit; did you mean a_factory_pickles?"
        in (outcome.err)
    )
