"""The experiments of the five papers, one after the other: ``python -m benchmarks reproduce [PAPER]``.

A step is a command of ``python -m benchmarks run``. Its rows, figure and tables go to ``OUT/PAPER/STEP``; until it is
done, to ``OUT/PAPER/STEP.part``. When it was stopped, the same command goes on: steps that are done are not run again,
nor are fits in processes of their own whose results are in ``calls.jsonl`` of the step (all but those of `accelerated`,
`bound_*` and `ds_mlr*`, whose steps are short for this reason). ``OUT/PAPER.md`` is the page of results.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape

from benchmarks import children, modules
from benchmarks.bench import Bench, Options

__all__ = ["PAPERS", "Step", "reproduce"]


class Step(NamedTuple):
    """One experiment of a paper.

    Attributes
    ----------
    shows : str
        Which table or figure of the paper.
    command : str
        What follows ``python -m benchmarks run``.
    """

    shows: str
    command: str

    @property
    def name(self) -> str:
        """Its folder."""
        return re.sub(r"[^\w.-]+", "_", self.command.replace("--", ""))


#: The paper's short name -> its title and experiments.
PAPERS: dict[str, tuple[str, tuple[Step, ...]]] = {
    "sdca": (
        "Accelerated proximal stochastic dual coordinate ascent",
        tuple(
            Step(f"Figure 6, {shown}, l2 weight {lam}", f"accelerated --data {data} --alpha {lam}")
            for data, shown in (("rcv1/ccat", "CCAT"), ("covtype", "cov1"), ("news20", "20 Newsgroups for astro-ph"))
            for lam in ("1e-6", "1e-7", "1e-8", "1e-9")
        ),
    ),
    "least_squares": (
        "Least squares revisited",
        (
            Step("Table 1", "ls_mnist --runs 1"),
            Step("Table 2: 20 Newsgroups", "ls_news20 --runs 1 --threads 2"),
            Step("Table 2: RCV1", "ls_rcv1 --runs 1 --threads 2"),
            Step("Figure 1 (a)", "ls_stagewise --runs 1"),
            Step("Figure 1 (a), predictions appended", "ls_stagewise --runs 1 --only appended"),
            Step("Figure 1 (b)", "ls_spectra"),
            Step("Figure 2", "ls_peers --runs 1 --budget 100"),
            Step("Figure 3", "ls_cifar --runs 2 --threads 2"),
            Step("MNIST below 1.1 %, with patches", "ls_mnist_features --runs 1 --threads 2"),
        ),
    ),
    "bound": (
        "Stochastic bound majorization",
        (
            Step("Figure 1", "bound_toy"),
            *(
                Step(f"Figure {figure}", f"bound_curves --runs 10 --data {data}")
                for figure, data in (
                    ("2, ecoli", "uci/ecoli"),
                    ("3, SecStr", "ssl_book/secstr"),
                    ("3, MNIST", "mnist_pca"),
                    ("3, digit1", "ssl_book/digit1"),
                    ("3, Text", "ssl_book/text"),
                    ("3, in place of gisette", "gisette_like"),
                )
            ),
            Step("The schedules on ten problems", "bound_epochs"),
        ),
    ),
    "ds_mlr": (
        "DS-MLR",
        (
            *(
                Step(f"Figures 3, 8, 10 to 12: {data}", f"ds_mlr --runs 1 --threads 2 --data {data} --only {method}")
                for data in ("clef", "news20")
                for method in ("ds_mlr", "ds_mlr_queue", "ds_mlr_printed", "lbfgs", "lc")
            ),
            *(
                Step(f"Figures 3, 4 on other data: {data}", f"ds_mlr --runs 1 --only {method} --data {data}")
                for data in ("icd10cm/3", "panlex_swadesh/110-frequent")
                for method in ("ds_mlr", "lbfgs", "lc")
            ),
            Step("The schedules and step sizes", "ds_mlr_schedules"),
            Step("Figure 4, its classes", "ds_mlr_hosts --only lshtc1,peers --runs 1 --budget 120"),
            Step("Figure 6, a limit of memory", "ds_mlr_hosts --only reddit --runs 1 --budget 120"),
            Step("Figures 6, 7", "ds_mlr_workers --threads 2 --runs 3 --data clef"),
            Step("Figures 5, 6: larger than memory, another algorithm", "out_of_core"),
        ),
    ),
    "memoir": (
        "MEMOIR",
        (
            Step("Table 2", "memoir_batch --runs 1"),
            Step("Figure 1", "memoir_alpha --runs 1"),
            *(
                Step(f"Table 3, Figure 2: {data}", f"many_classes_table --runs 1 --budget 600 --data {data}")
                for data in ("icd10cm/4", "panlex_swadesh", "bible_verses", "generated/100k")
            ),
            Step("growth with the number of classes", "memoir_scaling --runs 1"),
            Step("the thesis: accuracy by the recall of the search", "memoir_recall --runs 1 --budget 600"),
        ),
    ),
}


def reproduce(
    papers: Sequence[str], parse: Callable[[Sequence[str]], Options], out: Path, console: Console, extra: Sequence[str]
) -> int:
    """Run what is missing of these papers' experiments; the number of steps that failed or measured nothing.

    ``parse`` makes options of a command's arguments; ``extra`` are arguments for every step.
    """
    bad = 0
    for paper in papers:
        title, steps = PAPERS[paper]
        parts = [f"# {title}\n"]
        for step in steps:
            folder = out / paper / step.name
            if not folder.is_dir():
                _run(step, parse, folder, console, extra)
            done = folder.is_dir()
            bad += not done
            told = (folder if done else folder.with_name(folder.name + ".part")) / "tables.txt"
            text = told.read_text(encoding="utf-8") if told.is_file() else "it did not start\n"
            state = "" if done else " (not done)"
            command = " ".join(["python -m benchmarks run", step.command, *extra])
            parts.append(f"## {step.shows}{state}\n\n`{command}`\n\n```\n{text.strip()}\n```\n")
            out.mkdir(parents=True, exist_ok=True)
            (out / f"{paper}.md").write_text("\n".join(parts), encoding="utf-8")
        console.print(f"page:   {out / paper}.md", highlight=False)
    return bad


def _run(
    step: Step, parse: Callable[[Sequence[str]], Options], folder: Path, console: Console, extra: Sequence[str]
) -> None:
    """The folder is there in the end if the step ran to its end and measured something."""
    part = folder.with_name(folder.name + ".part")
    part.mkdir(parents=True, exist_ok=True)
    name, *arguments = step.command.split()
    options = parse([name, *arguments, *extra, "--out", str(part)])
    told = Console(record=True, width=160, file=console.file)
    begun = time.perf_counter()
    measured = False
    try:
        with children.remembered(part / "calls.jsonl"):
            bench = Bench(name, options, told)
            modules.module("experiments", name).run(bench)
            bench.close()
        measured = any(row["status"] == "measured" for row in bench.rows)
        told.print(f"{time.perf_counter() - begun:.0f} s", highlight=False)
    except Exception as error:  # the other steps are to run: the page tells this one's end
        told.print(escape(f"failed: {type(error).__name__}: {error}"), highlight=False)
    finally:
        (part / "tables.txt").write_text(told.export_text(), encoding="utf-8")
    if measured:
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
