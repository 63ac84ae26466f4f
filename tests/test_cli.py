"""The command line as a whole: its parser, its ways to fail, how it starts."""

from __future__ import annotations

import argparse
import inspect
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from manyclass import LinearClassifier, __version__, estimators
from manyclass.cli import _common, _data, _estimators, convert, demo, warmup
from manyclass.cli._common import in_options
from manyclass.cli.main import build_parser, main
from manyclass.features import BLOCKS
from manyclass.io import FORMATS
from manyclass.io.formats import SUFFIXES, TABLES
from manyclass.io.labels import TASKS
from manyclass.kernels import jit
from manyclass.objective.losses import CLASSIFICATION, REGRESSION
from manyclass.solvers import SOLVERS
from test_cli_support import digits, left, make, refused, run

COMMANDS = (
    "fit",
    "predict",
    "score",
    "calibrate",
    "explain",
    "report",
    "certify",
    "info",
    "convert",
    "demo",
    "bench",
    "warmup",
)


def python(*words, **options):
    return subprocess.run([sys.executable, *words], **{"capture_output": True, "text": True, "timeout": 120, **options})


def commands():
    """Name -> parser of a command."""
    found = next(action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return {name: command.filled() for name, command in found.choices.items()}


# --- the parser ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_examples(capsys, command):
    ran = run(capsys, command, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"usage: manyclass {command}")
    assert f"  manyclass {command}" in ran.out.partition("examples:")[2]
    assert "--quiet" in ran.out
    assert ran.err == ""


def test_help_lists_the_commands(capsys):
    ran = run(capsys, "--help")
    assert ran.code == 0
    for command in COMMANDS:
        assert [command] in [line.split()[:1] for line in ran.lines if line.startswith("    ")]


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"manyclass {__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "needle"),
    [
        ([], "COMMAND"),
        (["train"], "train"),
        (["fit"], "DATA"),
        (["fit", "data.svm"], "-o"),
        (["fit", "data.svm", "-o", "m", "--alpha", "much"], "--alpha"),
        (["fit", "data.svm", "-o", "m", "--alph", "1"], "--alph"),
        (["fit", "data.svm", "-o", "m", "--zero-based", "--one-based"], "--one-based"),
        (["fit", "data.svm", "-o", "m", "--min-df", "few"], "--min-df"),
        (["predict", "m"], "DATA"),
        (["convert", "data.svm"], "-o"),
    ],
)
def test_wrong_usage_is_one_sentence(capsys, words, needle):
    ran = run(capsys, *words)
    refused(ran, needle, "--help")
    assert len(ran.err.splitlines()) == 1


def test_names_are_those_of_the_library():
    assert set(demo.LOSSES) <= set(CLASSIFICATION)
    assert _data.FORMATS == FORMATS
    assert _data.TABLES == TABLES
    assert _data.TASKS == TASKS
    assert set(convert.TARGETS) == set(FORMATS) - set(_data.TABLES) <= set(SUFFIXES.values())


def defaults(kind):
    return {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}


def shown(value):
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_help_of_fit_is_what_the_library_declares(capsys):
    out = run(capsys, "fit", "--help").out
    words = " ".join(out.split())
    for name, kind in {**CLASSIFICATION, **REGRESSION, **SOLVERS}.items():
        own = {key: value for key, value in defaults(kind).items() if key not in getattr(kind, "local", ())}
        parameters = ", ".join(f"{key}={shown(value)}" for key, value in own.items())
        assert f" {name} {kind.summary} {parameters}" in words
    options = {action.dest for action in commands()["fit"]._actions} | {"random_state", "verbose", "warm_start"}
    for name, (classifier, _, summary) in _estimators.ESTIMATORS.items():
        own = defaults(getattr(estimators, classifier))
        parameters = ", ".join(f"{key}={shown(value)}" for key, value in own.items() if key not in options)
        assert f" {name} {summary} {parameters}" in words
    assert "(default: 0.001)" in out  # tol of LinearClassifier
    assert words.endswith("features: " + ", ".join(f"{name} ({kind.__name__})" for name, kind in BLOCKS.items()))
    assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize(
    ("words", "needle"),
    [
        (["--alhpa", "1"], "did you mean --alpha?"),
        (["--max-iters", "1"], "did you mean --max-iter?"),
        (["--C", "1"], "--alpha is 1 / (C * rows)"),
        (["--penalty", "l1"], "--l1-ratio 0 is l2, 1 is l1"),
        (["--method", "bound"], "--solver"),
        (["--gamma=0.5"], "a parameter of loss crammer_singer, smooth_hinge: --set loss.gamma=VALUE"),
        (["--rank", "8"], "a parameter of solver bound: --set solver.rank=VALUE"),
        (["--n-blocks", "3"], "a parameter of --estimator stagewise: --set n_blocks=VALUE"),
        (["--wxyz"], "unrecognized arguments: --wxyz (see"),
        (["more.svm"], "unrecognized arguments: more.svm (see"),
    ],
)
def test_unknown_options_are_answered_with_what_is_meant(capsys, words, needle):
    refused(run(capsys, "fit", "data.svm", "-o", "m", *words), needle, "(see: manyclass fit --help)")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["predict", "m", "x.csv", "--prba"], "--proba"),
        (["score", "m", "x.csv", "--topk", "3"], "--top-k"),
        (["convert", "x.csv", "-o", "x.npz", "--label-colum=y"], "--label-column"),
        (["explain", "m", "x.csv", "--jsn"], "--json"),
        (["demo", "--quite"], "--quiet"),
    ],
)
def test_every_command_knows_the_option_that_is_meant(capsys, words, meant):
    refused(run(capsys, *words), f": did you mean {meant}?", f"(see: manyclass {words[0]} --help)")


def test_options_for_all_stand_before_or_after_the_command():
    parser = build_parser()
    for words in (["--quiet", "info", "x"], ["info", "x", "--quiet"]):
        args = parser.parse_args(words)
        assert (args.quiet, args.debug) == (True, False)
    assert not parser.parse_args(["info", "x"]).quiet


# --- how it starts ---------------------------------------------------------------------------------------------------


def test_help_and_version_import_nothing_heavy():
    code = (
        "import sys; from manyclass.cli.main import main; "
        "fit = ['fit', 'data.svm', '-o', 'm', '--gamma', '1']; "
        "codes = [main(words) for words in (['--version'], ['--help'], ['fit', '--help'], ['fit'], fit)]; "
        "heavy = {'numpy', 'scipy', 'numba', 'sklearn', 'rich', 'matplotlib', 'safetensors'} & set(sys.modules); "
        "sys.exit(f'{codes} {heavy}')"
    )
    assert python("-c", code).stderr.splitlines()[-1] == "[0, 0, 0, 2, 2] set()"


def test_warmup_compiles_what_a_fit_uses(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    words = ["-m", "manyclass", "warmup", "--loss", "squared", "--rows", "dense", "--dtype", "float64"]
    first = python(*words, env=environment)
    assert first.returncode == 0, first.stderr
    assert "squared, dense float64" in first.stderr
    facts = dict(line.split(maxsplit=1) for line in first.stdout.splitlines())
    assert int(facts["compiled"].split()[0]) > 0
    code = (
        "from sklearn.datasets import load_diabetes; from manyclass import LinearRegressor; "
        "X, y = load_diabetes(return_X_y=True); LinearRegressor(solver='sdca', max_iter=1000).fit(X, y).predict(X); "
        "from manyclass.kernels.jit import compile_clock; print(compile_clock.kernels)"
    )
    fitted = python("-c", code, env=environment)
    assert fitted.stdout.split() == ["0"], fitted.stderr


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["crammer_singer", "multinomial"])
def test_warmup_compiles_what_many_classes_use(tmp_path, loss):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    words = ["-m", "manyclass", "warmup", "--loss", loss, "--rows", "sparse"]
    dense = loss == "multinomial"
    assert python(*words, *["dense"] * dense, env=environment, timeout=300).returncode == 0  # compiles for a minute
    code = (
        "from manyclass import LinearClassifier; from manyclass.datasets import make_many_classes\n"
        "from manyclass.kernels.jit import compile_clock\n"
        f"for n, d, K in ((3000, 2000, 300), (20000, 60000, {2000 if dense else 5000})):\n"
        "    X, y = make_many_classes(n, d, K, random_state=0)\n"
        f"    for rows in (X, X[:, :60].toarray())[:{1 + dense}]:\n"
        "        for alpha in (None, 1e-7):\n"
        f"            model = LinearClassifier({loss!r}, alpha=alpha, max_iter=2).fit(rows, y)\n"
        "            model.predict(rows[:500])\n"
        "print(compile_clock.kernels)"
    )
    fitted = python("-c", code, env=environment)
    assert fitted.stdout.split() == ["0"], fitted.stderr


def test_warmup_removes_the_machine_code_of_other_versions(tmp_path):
    sources = Path(jit.__file__).parent
    tag = f"py{sys.version_info[0]}{sys.version_info[1]}"
    now, before = jit.source_stamp(sources), "the stamp of other sources"
    for name, stamp in (("same", before), ("same", now), ("gone", before)):
        jit._CacheFile(str(tmp_path), f"module.{name}-7.{tag}", stamp, sources).save(("key", stamp), "code")
    jit._CacheFile(str(tmp_path), "module.gone-7.py27", before, sources).save("key", "code")
    assert warmup._sweep((tmp_path, sources)) > 0
    kept = sorted((*file.name.split(".")[1:3], file.suffix) for file in tmp_path.iterdir())
    assert kept == [(*name, kind) for name in (("gone-7", "py27"), ("same-7", tag)) for kind in (".nbc", ".nbi")]
    assert len(warmup._caches()) > 1


def test_warmup_refuses_what_does_not_fit_together(capsys):
    refused(run(capsys, "warmup", "--loss", "multinominal"), "did you mean 'multinomial'?")
    refused(run(capsys, "warmup", "--loss", "hinge", "--solver", "lbfgs"), "hinge")


def test_python_m_manyclass():
    done = python("-m", "manyclass", "--version")
    assert (done.returncode, done.stdout) == (0, f"manyclass {__version__}\n")
    assert python("-m", "manyclass", "fit").returncode == 2


# --- how it fails ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "origin"),
    [
        ("fit no -o m", "DATA"),
        ("fit data.svm -o m --valid no", "--valid"),
        ("fit data.svm -o m --labels no", "--labels"),
        ("fit data.svm -o m --valid data.svm --valid-labels no", "--valid-labels"),
        ("predict no data.svm", "MODEL"),
        ("predict digits.model no", "DATA"),
        ("score digits.model no", "DATA"),
        ("score digits.model data.svm --labels no", "--labels"),
        ("calibrate digits.model no -o m", "DATA"),
        ("explain no data.svm", "MODEL"),
        ("report digits.model no -o m", "DATA"),
        ("certify digits.model no", "DATA"),
        ("info no", "MODEL|DATA"),
        ("info no --verify", "MODEL|DATA"),
        ("info data.svm --labels no", "--labels"),
        ("convert no -o m.npz", "DATA|MODEL"),
        ("convert data.svm --labels no -o m.npz", "--labels"),
        ("predict no no", "MODEL and DATA"),
    ],
)
def test_a_missing_file_is_named_with_its_argument(capsys, monkeypatch, tmp_path, words, origin):
    make("svm", tmp_path)
    X, y = digits()
    LinearClassifier(loss="log_loss", alpha=1e-2, tol=1e-1).fit(X, y).save(tmp_path / "digits.model")
    before = left(tmp_path)
    monkeypatch.chdir(tmp_path)
    refused(run(capsys, *words.split()), f"manyclass: error: {origin} no: No such file or directory")
    assert left(tmp_path) == before


def test_a_file_that_is_not_there_is_told_with_the_one_that_is(capsys, tmp_path):
    make("svm", tmp_path).rename(tmp_path / "train-2024.svm")
    asked = ("fit", tmp_path / "train_2024.svm", "-o", tmp_path / "m")
    refused(run(capsys, *asked), "train_2024.svm: No such file or directory: did you mean 'train-2024.svm'?")
    refused(run(capsys, "fit", tmp_path / "none" / "a.svm", "-o", tmp_path / "m"), f"there is no folder {tmp_path}")
    refused(run(capsys, "info", tmp_path / "zzz"), f"{tmp_path / 'zzz'}: No such file or directory")
    (tmp_path / "note.md").touch()
    assert "did you mean" not in run(capsys, "info", tmp_path / "nothere.model").err
    assert "did you mean 'note.md'" in run(capsys, "info", tmp_path / "note.txt").err


def test_debug_shows_the_place(tmp_path):
    with pytest.raises(FileNotFoundError):
        main(["info", str(tmp_path / "no.svm"), "--debug"])


def test_a_fault_of_the_program_is_no_fault_of_the_user(capsys, monkeypatch, tmp_path):
    def broken(*_, **__):
        raise TypeError("a bug")

    monkeypatch.setattr(_data, "describe", broken)
    with pytest.raises(TypeError):
        main(["convert", str(make("svm", tmp_path)), "-o", str(tmp_path / "x.npz")])


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "out of memory"),
        (MemoryError("this fit needs 3 TiB"), "this fit needs 3 TiB"),
        (PermissionError(13, "Permission denied", "data.svm"), "data.svm: Permission denied"),
        (OSError("the disk is full"), "the disk is full"),
        (ValueError("two\n  lines"), "two lines"),
        (ValueError("got np.int64(0) and np.str_('a')"), "got 0 and 'a'"),
    ],
)
def test_errors_become_one_line(capsys, monkeypatch, tmp_path, error, sentence):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("manyclass.io.detect_format", fail)
    path = make("svm", tmp_path)
    ran = run(capsys, "convert", path, "-o", tmp_path / "x.npz")
    refused(ran)
    assert ran.err == f"manyclass: error: {sentence}\n"


def test_ctrl_c_where_nothing_could_be_kept(capsys, monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    path = make("svm", tmp_path)
    before = left(tmp_path)
    monkeypatch.setattr("manyclass.io.read", interrupted)
    for words in (["fit", path, "-o", tmp_path / "m"], ["convert", path, "-o", tmp_path / "x.npz"]):
        ran = run(capsys, *words)
        assert ran.code == 130
        assert ran.err.splitlines()[-1] == "manyclass: error: interrupted: nothing was kept"
        assert left(tmp_path) == before


def test_a_closed_pipe_is_silent(capsys, tmp_path):
    model = tmp_path / "m"
    assert run(capsys, "fit", make("svm", tmp_path), "-o", model, "--quiet").code == 0
    X, y = digits(1500)
    many = tmp_path / "many.svm"
    # Far more lines than a pipe holds.
    _write_svm(many, X, y)
    command = [sys.executable, "-m", "manyclass", "predict", str(model), str(many), "--top-k", "10", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


def _write_svm(path, X, y):
    from manyclass.io import write_svmlight

    write_svmlight(path, X, y)
    path.write_bytes(path.read_bytes() * 5)


def test_warnings_of_the_library_are_lines(capsys, monkeypatch, tmp_path):
    real = _data.describe

    def describe(data):
        warnings.warn("mind the max_iter", UserWarning, stacklevel=2)
        return real(data)

    monkeypatch.setattr(_data, "describe", describe)
    ran = run(capsys, "info", make("svm", tmp_path), "--json")
    assert ran.code == 0
    assert ran.err == "manyclass: warning: mind the max_iter\n"
    ran = run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m", "--quiet")
    assert ran.err == "manyclass: warning: mind the --max-iter\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise max_iter or alpha", "raise --max-iter or alpha"),
        ("name it (format=)", "name it (--format)"),
        ("fit with dtype=np.float64", "fit with --dtype float64"),
        ("task='regression' needs it", "--task 'regression' needs it"),
        ("text_column is 'x'; expected one", "--text-column is 'x'; expected one"),
        ("read it with quote=None", "read it with --no-quotes"),
        ("pass zero_based=True to allow 0", "pass --zero-based to allow 0"),
        ("its number (text_column=0, header=False)", "its number (--text-column 0, --no-header)"),
        ("data/max_iter.svm: the labels, and max_iter/x, x-max_iter", None),
        ("label_names has shape 3; X=4, alpha is 3", None),
        ("give loss=CrammerSinger(gamma=0)", "give --loss crammer_singer --set loss.gamma=0"),
        (
            "solver=SDCA(option='II', sampling='uniform')",
            "--solver sdca --set solver.option=II --set solver.sampling=uniform",
        ),
        ("give fit_intercept=False, or 'auto'", "give --no-intercept, or neither"),
        ("'hinge', or an object such as Multinomial(), got 'x'", "'hinge', got 'x'"),
    ],
)
def test_arguments_are_named_as_options(text, said):
    args = build_parser().parse_args(["fit", "data", "-o", "model"])
    assert in_options(text, args) == (text if said is None else said)


# --- what commands share ---------------------------------------------------------------------------------------------


def test_outputs_are_checked(tmp_path):
    here = tmp_path / "here"
    here.write_text("x")
    _common.check_output("-o", None)
    _common.check_output("-o", str(here), str(tmp_path / "other"), None)
    _common.check_output("-o", str(tmp_path / "new"))
    for path, needle in ((tmp_path, "is a folder"), (tmp_path / "no" / "x", "does not exist"), (here, "is the input")):
        with pytest.raises(_common.CommandError, match=needle):
            _common.check_output("-o", str(path), str(here))


def test_tables_keep_brackets_and_long_names(capsys):
    _common.Screen().facts("[bold]title[/bold]", {"file": "a[red]b" + "x" * 130})
    out = capsys.readouterr().out
    assert "[bold]title[/bold]" in out
    assert "a[red]b" + "x" * 130 in out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_numbers_stand_to_the_right(capsys):
    _common.Screen().table("", ["name", "size"], [["a", "1,000"], ["bb", "> 10"]])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith((" a", " bb"))]
    assert [line.index(" a") for line in rows[:1]] == [0]
    assert len({len(line) for line in rows}) == 1


def test_pieces_cover_all_rows():
    for n, k in ((0, 5), (1, 5), (1000, 10**9), (10**6, 100)):
        parts = list(_common.pieces(n, k))
        assert [i for part in parts[:3] for i in range(part.start, part.stop)][:1] == ([0] if n else [])
        assert sum(part.stop - part.start for part in parts) == n
        assert all((part.stop - part.start) * k <= max(_common._BUFFER, k) for part in parts)


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [(1, "class", "1 class"), (2, "class", "2 classes"), (1234, "row", "1,234 rows"), (1234, "", "1,234")],
)
def test_counts(number, noun, text):
    assert _common.count(number, noun) == text


def test_json_has_no_nan(capsys):
    _common.Screen().json({"a": float("inf"), "b": [float("nan"), 1.5], "c": {"d": "ü"}})
    out = capsys.readouterr().out
    assert "".join(out.split()) == '{"a":null,"b":[null,1.5],"c":{"d":"ü"}}'


def test_every_option_has_help():
    assert set(commands()) == set(COMMANDS)
    for name, command in commands().items():
        for action in command._actions:
            assert action.help, f"{name} {action.dest}"
