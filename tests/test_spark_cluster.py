"""Clusters: networks on executors that are processes of their own and get the package with the job.

One submission does everything (`tests/cluster_program.py`), because starting a cluster takes longest: with the command
of `docs/clusters.md`, by a Python that has the packages which this project needs, but not the project.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path
from typing import Any

import pytest

from cql.errors import CqlError
from tests.documents import FOLDER, Block, Document

pytest.importorskip("pyspark")

import pyspark

from runtime.spark.clusters import checkpoint_folder

pytestmark = pytest.mark.spark(own_process=True)

ROOT = Path(__file__).parent.parent
MASTER = "local-cluster[2,1,1024]"
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK = {
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
}
ELSEWHERE = {"spark.hadoop.fs.defaultFS": "hdfs://nowhere.invalid:8020"}
"""Nothing may go to the cluster's default file system by accident."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `tests/cluster_program.py` has found."""
    folder = tmp_path_factory.mktemp("cluster")
    subprocess.run([ROOT / "tools" / "package.sh", sys.executable, folder], check=True, timeout=300)
    shutil.copytree(FOLDER, folder / "shared")
    example = folder / "example.py"
    example.write_text(example_block().text.replace("/shared", str(folder / "shared")))
    (folder / "driver").mkdir()
    ran = subprocess.run(
        submission(folder, [str(ROOT / "tests" / "cluster_program.py"), str(ROOT), str(example), str(folder)]),
        cwd=folder / "driver",
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-20_000:]
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


PAGE = Document(ROOT / "docs" / "clusters.md")


def example_block() -> Block:
    return next(block for block in PAGE.blocks if block.words == ("python", "submitted"))


def submission(folder: Path, program: list[str]) -> list[str]:
    """Return the first command of the page that submits, with our master, package, settings and program."""
    scripts = (block.text.replace("\\\n", " ") for block in PAGE.blocks if block.language == "sh")
    lines = (shlex.split(line) for script in scripts for line in script.splitlines())
    command, *options, _ = next(line for line in lines if line[0] == "spark-submit")
    ours = {"--master": MASTER, "--py-files": str(folder / "cql.zip")}
    pairs = [(key, ours.get(key, value)) for key, value in zip(options[::2], options[1::2], strict=True)]
    assert ours.keys() <= dict(pairs).keys()
    pairs += [("--conf", f"{key}={value}") for key, value in {**QUICK, **ELSEWHERE}.items()]
    return [str(spark_home(folder) / "bin" / command), *(word for pair in pairs for word in pair), *program]


def environment(folder: Path) -> dict[str, str]:
    """Return an environment in which nothing but the job's files says where the package is."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYSPARK_DRIVER_PYTHON")}
    return {
        **kept,
        "SPARK_HOME": str(spark_home(folder)),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LAUNCHER_OPTS": JAVA,
        "PYSPARK_PYTHON": str(bare_python(folder / "python")),
    }


def spark_home(folder: Path) -> Path:
    """Return a copy of Spark's folder by links: the workers of a local cluster write to where Spark is."""
    home = folder / "spark"
    if not home.exists():
        home.mkdir()
        for name in ("bin", "jars", "python"):
            (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


def bare_python(folder: Path) -> Path:
    """Return a Python with the packages that are installed here, except this one, which is installed by a .pth file."""
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    python = folder / "bin" / "python"
    probe = "import importlib.util as u; assert u.find_spec('pyspark') and not u.find_spec('runtime')"
    subprocess.run([python, "-I", "-c", probe], check=True)
    return python


def test_the_archive_of_the_page_has_what_the_package_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.match(r"[\w-]+", each)[0] for each in project["dependencies"]}  # type: ignore[index]
    (installed,) = re.findall(r"^pip install .* constraints.txt (.*)$", PAGE.text, re.MULTILINE)
    assert {*installed.split(), "pyspark"} == needed


@pytest.mark.parametrize("checkpoint", [Path("hdfs://name:8020/checkpoint"), Path("s3a://bucket/checkpoint")])
def test_a_url_cannot_be_a_checkpoint(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CqlError, match="the checkpoint cannot be the URL"):
        checkpoint_folder(checkpoint)
    assert list(tmp_path.iterdir()) == []


def test_a_submitted_program_gets_the_session_of_its_options(report: dict[str, Any]) -> None:
    assert report["master"] == MASTER


def test_driver_and_executors_import_the_package_that_was_submitted(report: dict[str, Any]) -> None:
    assert Path(report["package"]["driver"]).parts[-3:] == ("cql.zip", "runtime", "__init__.py")
    assert report["package"]["executors"] == ["cql.zip/runtime/__init__.py"] * 4


def test_the_program_of_the_page_prints_what_the_page_says(report: dict[str, Any]) -> None:
    shown = PAGE.blocks[PAGE.blocks.index(example_block()) + 1]
    assert report["example"].rstrip("\n") == shown.text.rstrip("\n")


def test_a_checkpoint_that_executors_do_not_see_is_refused(report: dict[str, Any]) -> None:
    assert "the checkpoint '/proc/self/cwd/checkpoint' is not shared by all machines" in report["not shared"]
    assert "No such file or directory" in report["not shared"]


def test_executors_give_the_answers_of_the_definition(report: dict[str, Any]) -> None:
    differences = [found for network in report["random"].values() for found in network.values()]
    assert len(report["random"]) == 2
    assert differences and all(found is None for found in differences), report["random"]


def test_a_run_whose_executor_is_killed_goes_on_to_the_same_answers(report: dict[str, Any]) -> None:
    killed = report["killed"]
    assert killed["killed"] == 1
    assert min(killed["before"], killed["after"]) >= 3
    assert set(killed["differences"].values()) == {None}, killed
