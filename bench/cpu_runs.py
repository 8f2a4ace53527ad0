"""What compare_cpu.py keeps of its runs, as JSON: one file for a processor.

A run is a dict: op, processor (processor.py), date, threads, budget_gflop (by set), heading, rates, failures, left_out
and results, one for each layer: name, set, n, gflop, and contenders, by name, as report.py has them, with gbyte, what
its dtype and layout have to move, and runs_ms, the milliseconds of each run over the layers; ms is their median. A set
is a file of workloads. Files from before there were operations are of the forward one, those from before there were
sets and runs of the first set and of one run.
"""

import statistics

import run_files

TUNED, BROAD = "workloads", "workloads_broad"
ELEMENT_BYTES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2}
SETS = {TUNED: "layers that tconv was tuned for", BROAD: "layers that it was not tuned for"}


def load(path):
    run = run_files.load(path)
    if not isinstance(run["budget_gflop"], dict):
        run["budget_gflop"] = {TUNED: run["budget_gflop"]}
        lines = [line for line in run["heading"] if line.startswith("- ") and "GFLOP/s, copy" not in line]
        run["heading"] = [line.removeprefix("- ") for line in lines]
    run.setdefault("op", "forward")
    for key in ("failures", "left_out"):
        run.setdefault(key, [])
    for result in run["results"]:
        result.setdefault("set", TUNED)
        for found in result["contenders"].values():
            found.setdefault("runs_ms", [found["ms"]])
            if "gbyte" not in found:
                found["gbyte"] = result["gbyte"] / ELEMENT_BYTES["f32"] * ELEMENT_BYTES[found["dtype"]]
    return run


def sets(run):
    return list(dict.fromkeys(result["set"] for result in run["results"]))


def of_set(run, name):
    return [result for result in run["results"] if result["set"] == name]


def count(run):
    """How many runs over the layers there were."""
    return max((len(f["runs_ms"]) for r in run["results"] for f in r["contenders"].values()), default=0)


def add(results, new):
    """Adds what a further run over a layer found to the results."""
    old = next((r for r in results if (r["set"], r["name"]) == (new["set"], new["name"])), None)
    if old is None:
        results.append(new)
        return
    if old["n"] != new["n"]:
        raise ValueError(f"{new['name']}: {old['n']} images in one run, {new['n']} in the other")
    for name, found in new["contenders"].items():
        known = old["contenders"].setdefault(name, {**found, "runs_ms": []})
        known["runs_ms"] += found["runs_ms"]
        known["ms"] = statistics.median(known["runs_ms"])
        known["relative_l2"] = max(known["relative_l2"], found["relative_l2"])


def merged(runs):
    """Runs on one processor as one. Floors are then to be set again: the better of the rates counts."""
    first, *others = runs
    for run in others:
        for key in ("op", "threads", "budget_gflop"):
            if run[key] != first[key]:
                raise ValueError(f"runs with different {key}: {first[key]} and {run[key]}")
        if run["processor"]["slug"] != first["processor"]["slug"]:
            raise ValueError(f"runs on {first['processor']['slug']} and on {run['processor']['slug']}")
        for key, rates in run["rates"].items():
            known = first["rates"].setdefault(key, rates)
            first["rates"][key] = {name: max(rates[name], known[name]) for name in rates}
        for key in ("failures", "left_out"):
            first[key] += [text for text in run[key] if text not in first[key]]
        for result in run["results"]:
            add(first["results"], result)
    measured = {result["name"] for result in first["results"]}
    first["left_out"] = [name for name in first["left_out"] if name not in measured]
    return first
