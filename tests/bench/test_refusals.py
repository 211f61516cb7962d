"""What a bench cannot do is said in a line, before anything runs."""

import pytest

from bench.cluster.command import main as cluster
from bench.period.command import main as period
from bench.recurring.command import main as recurring
from bench.strategies.command import main as strategies
from bench.suite import main as suite
from bench.tables.command import main as tables


@pytest.mark.parametrize(
    ("main", "words", "message"),
    [
        (cluster, ["up", "--spread", "100%"], "argument --spread: "),
        (cluster, ["up", "--spread", "-1%"], "argument --spread: "),
        (cluster, ["up", "--spread", "1.0"], "argument --spread: "),
        (period, ["--real", "gloo"], "no family 'gloo'; there are gloo 125M, gloo 350M"),
        (period, ["--known-window"], "--known-window goes with --real"),
        (recurring, ["--troubles", "rain"], "bench: there is no trouble 'rain'; choose of crashes, preempted, memory"),
        (recurring, ["--workloads", "resnet"], "bench: there is no workload 'resnet'; choose of shufflenet, resnet50"),
        (recurring, ["--seeds", "1"], "bench: --seeds takes 2 or more, for the errors"),
        (suite, ["--networks", "resnet34"], "unknown network 'resnet34'; choose one of alexnet"),
        (suite, ["--strategies", "luck"], "unknown strategy 'luck'; choose one of"),
        (tables, ["--networks", "lenet"], "--networks lenet: choose of Alexnet, VGG-19"),
        (strategies, ["--strategies", "tabu"], "bench: unknown strategy 'tabu'"),
        (strategies, ["--strategies", "model", "--metrics", "joy"], "bench: unknown metric 'joy'"),
        (strategies, ["--mode", "jobs", "--curves", "x.csv"], "bench: --curves belongs to --mode curves"),
        (
            strategies,
            ["--mode", "jobs", "--by-family"],
            "bench: --families, --leave-out, --card and --by-family belong to --mode curves",
        ),
        (
            strategies,
            ["--families", "knee"],
            "bench: unknown family of curves 'knee' (did you mean knees?); choose of seed, made-up",
        ),
        (
            strategies,
            ["--families", "flat", "--leave-out", "flat"],
            "bench: --leave-out names the families itself; leave",
        ),
        (
            strategies,
            ["--strategies", "golden", "--leave-out", "flat"],
            "bench: strategy golden names no families of its prior",
        ),
    ],
)
def test_what_a_bench_cannot_do_is_said_before_anything_runs(
    main, words, message, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        status = main(words)
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
