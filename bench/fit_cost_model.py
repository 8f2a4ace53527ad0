#!/usr/bin/env python3
"""Fits the numbers of the cost model of src/cuda/model to times of sweep_tiles.py. Needs numpy and scipy.

    fit_cost_model.py SWEEP.csv [--half] [--iterations N]

The cost is that of cost.c, written for arrays: a change of one needs the same of the other. What is minimised is the
expected regret, over the best kernel of a layer and over the best tile of an implementation, where a kernel is chosen
with a probability that falls with its predicted time; beside it a robust error, and a pull to today's numbers. With
--half it is fitted to half of the layers, and judged on the others. Prints each number before and after, and the regret
of both. What it prints is to be copied to machines.c, cost.c and the work.c of each implementation, then swept again:
a search finds tiles that no sweep had.
"""

import argparse
import csv
import pathlib
import re
import zlib

import numpy as np
import scipy.optimize

MODEL = pathlib.Path(__file__).resolve().parent.parent / "src" / "cuda" / "model"
CORRECTIONS = ("issue_cycles", "slow_issue_cycles", "tile_cycles")
MEASURED = ("hz", "dram", "ffma", "multiprocessors", "capability")  # not fitted
FIRM = {"wgmma": 0.05, "launch": 0.05, "l2": 0.15, "shared": 0.15, "bulk_store": 0.15, "l2_latency": 0.15}
TEMPERATURES = (0.06, 0.03, 0.02)  # relative times: kernels nearer than this are taken about as often


def machine():
    """The H200's numbers, and the share of cost.c."""
    text = (MODEL / "machines.c").read_text()
    chains = text[text.index("#define CHAINS") : text.index("static const tconv_cuda_machine machines[]")]
    h200 = text[text.index('.name = "h200"') : text.index('.name = "h100"')]
    numbers = dict(re.findall(r"\.(\w+) = ([-0-9.e]+)", chains + h200))
    numbers["exposed"] = re.search(r"EXPOSED_SHARE ([0-9.]+)", (MODEL / "cost.c").read_text())[1]
    return {name: float(value) for name, value in numbers.items()}


def soft(a, b):
    """The polynomial of cost.c for the 6-norm."""
    high, low = np.maximum(a, b), np.minimum(a, b)
    x = (low / np.maximum(high, 1e-30)) ** 6
    return high * (1 + x * (0.16637 + x * (-0.0641 + x * 0.0202)))


def waits(work, m, loading, multiply, convert, weights):
    held = np.where(work["converted_stages"] > 0, loading, loading + multiply)
    latency = m["latency"] + work["stage_k_blocks"] * held
    src = np.where(work["stages"] > 0, latency / np.maximum(work["stages"], 1e-9), 0)
    converted = np.where(
        work["converted_stages"] > 0, (convert + multiply) / np.maximum(work["converted_stages"], 1e-9), 0
    )
    arrival = m["l2_latency"] * work["weight_waits"] + weights + multiply
    weight = np.where(work["weight_stages"] > 0, arrival / np.maximum(work["weight_stages"], 1e-9), 0)
    return soft(soft(src, converted), weight)


def seconds(work, m):
    """tconv_cuda_cost_of, in its words."""
    tensor = work["wgmma"] * m["wgmma"] + work["mma_sync"] * m["mma_sync"] / 4
    products = soft(tensor, work["ffma"] / 128 * m["ffma"] + work["loads"] * m["load"])
    shared = work["shared_bytes"] / m["shared"]
    src = np.maximum(work["box_bytes"] / m["l2"], work["box_rows"] * m["box_row"])
    weights = work["weight_bytes"] / m["l2_weights"]
    convert = work["conversions"] * m["conversion"] + sum(
        work[kind + "_bytes"] / m[kind] for kind in ("transpose", "split", "convert", "gather")
    )
    chain_loads = work["chain_loads"] * m["chain_load"]
    chain = work["wgmma_chain"] * m["wgmma"] + work["mma_chain"] * m["mma_chain"] + work["adds"] * m["add"]
    chain = chain + work["fragments"] * m["fragment"] + work["issues"] * work["issue_cycles"]
    chain = chain + work["slow_issues"] * work["slow_issue_cycles"]
    loading, load = src + convert + chain_loads, src + weights
    wait = waits(work, m, loading, np.maximum(np.maximum(tensor, shared), chain), convert, weights)
    busy = soft(products, shared)
    together = soft(busy, soft(load, convert))
    alone = soft(soft(busy, soft(load, convert + chain_loads)), soft(chain, wait))
    write = work["sectors"] * m["sector"] + work["part_sectors"] * m["part_sector"]
    stores = (work["stores"] * m["store"] + work["bulk_stores"] * m["bulk_store"]) / work["store_warps"]
    end, shared_end = soft(stores, write), soft(work["stores"] * m["load"], write)
    overlaps, prologue = work["overlaps"] > 0, work["prologue"] > 0
    first = m["latency"] + work["prologue"] * loading + (work["k_blocks"] - 1) * alone + soft(busy, chain)
    loop = work["tile_cycles"] + np.where(overlaps, work["part_sectors"] * m["part_delay"], 0)
    loop = loop + np.where(prologue, first, work["k_blocks"] * alone)
    shared_loop = work["k_blocks"] * together
    tile = np.where(overlaps, soft(loop, end) + work["exposed"] * m["exposed"] * end, loop + end)
    shared_tile = np.where(overlaps, soft(shared_loop, shared_end), shared_loop + shared_end)
    cycles = work["rounds"] * soft(tile, work["resident"] * shared_tile)
    cycles = cycles + np.where(prologue, 0, m["latency"] + loading) + np.where(overlaps, end, 0)
    everywhere = m["multiprocessors"] * m["hz"]
    launch = m["launch"] + work["passes"] * m["pass_launch"] + work["pass_bytes"] / (m["pass"] * everywhere)
    return launch + ((cycles / m["hz"]) ** 4 + (work["dram_bytes"] / (m["dram"] * everywhere)) ** 4) ** 0.25


class Fit:
    def __init__(self, rows):
        self.names = np.array([row["implementation"] for row in rows])
        words = ("True", "False")
        number = {"True": 1.0, "False": 0.0}
        fields = list(rows[0])[6:]
        self.work = {
            name: np.array([number[row[name]] if row[name] in words else float(row[name]) for row in rows])
            for name in fields
        }
        self.log_time = np.log([float(row["ms"]) * 1e-3 for row in rows])
        self.layer_names = np.array([row["layer"] for row in rows])
        self.modes = np.array([row["mode"] + " " + row["layout"] for row in rows])
        layer = [(row["mode"], row["layout"], row["layer"]) for row in rows]
        self.layers = self.numbered(layer)
        self.tiles = self.numbered([(*key, name) for key, name in zip(layer, self.names, strict=True)])
        self.machine = machine()
        self.fitted = [name for name in self.machine if name not in MEASURED]
        # A correction of an implementation is scaled as a whole: its plans may have several values, for two kernels.
        self.corrections = [
            (name, field)
            for name in np.unique(self.names)
            for field in CORRECTIONS
            if self.work[field][self.names == name].max() > 0
        ]
        self.begin = np.concatenate(
            [np.log([self.machine[name] for name in self.fitted]), np.zeros(len(self.corrections))]
        )
        self.loose = np.array([FIRM.get(name, 0.3) for name in self.fitted] + [0.4] * len(self.corrections))

    @staticmethod
    def numbered(keys):
        numbers = {}
        return np.array([numbers.setdefault(key, len(numbers)) for key in keys])

    def log_predicted(self, x):
        values = np.exp(x)
        m = self.machine | dict(zip(self.fitted, values, strict=False))
        work = dict(self.work)
        for (name, field), scale in zip(self.corrections, values[len(self.fitted) :], strict=True):
            work[field] = np.where(self.names == name, work[field] * scale, work[field])
        return np.log(seconds(work, m))

    def lost(self, group):
        best = np.full(group.max() + 1, np.inf)
        np.minimum.at(best, group, self.log_time)
        return self.log_time - best[group]

    def expected(self, predicted, group, temperature, chosen):
        least = np.full(group.max() + 1, np.inf)
        np.minimum.at(least, group, predicted)
        weight = np.exp((least[group] - predicted) / temperature)
        lost = np.bincount(group, weight * self.lost(group)) / np.bincount(group, weight)
        return lost[np.unique(group[chosen])]

    def loss(self, x, temperature, chosen):
        predicted = self.log_predicted(x)
        layers = self.expected(predicted, self.layers, temperature, chosen)
        tiles = self.expected(predicted, self.tiles, temperature, chosen)
        error = np.abs(predicted - self.log_time)[chosen]
        robust = np.where(error < 0.3, error**2 / 2, 0.3 * (error - 0.15))
        pull = (((x - self.begin) / self.loose) ** 2).sum()
        return layers.mean() + 0.5 * (layers**2).mean() + 0.6 * tiles.mean() + 0.1 * robust.mean() + 2e-4 * pull

    def run(self, chosen, iterations):
        x = self.begin.copy()
        for temperature in TEMPERATURES:

            def loss(x, temperature=temperature):
                return self.loss(x, temperature, chosen)

            found = scipy.optimize.minimize(loss, x, method="L-BFGS-B", options={"maxiter": iterations, "eps": 1e-3})
            x = found.x
        return x

    def report(self, x, chosen):
        predicted = self.log_predicted(x)
        for mode in np.unique(self.modes):
            here = np.flatnonzero(chosen & (self.modes == mode))
            order = here[np.lexsort((predicted[here], self.layers[here]))]
            taken = order[np.unique(self.layers[order], return_index=True)[1]]
            regret = self.lost(self.layers)[taken]
            worst = taken[np.argsort(-regret)[:3]]
            named = ", ".join(f"{self.layer_names[i]} {np.exp(self.lost(self.layers)[i]):.2f}" for i in worst)
            print(f"  {mode}: {np.exp(regret.mean()):.4f}; worst {named}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=argparse.FileType("r"))
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--iterations", type=int, default=25)
    asked = parser.parse_args()
    fit = Fit(list(csv.DictReader(asked.sweep)))
    half = np.array([zlib.crc32(name.encode()) % 2 == 0 for name in fit.layer_names])
    judged, fitted = (half, ~half) if asked.half else (np.ones_like(half), np.ones_like(half))
    print(f"{len(fit.names)} kernels; regret over the best of all kernels of a layer, before:")
    fit.report(fit.begin, judged)
    x = fit.run(fitted, asked.iterations)
    print("after:")
    fit.report(x, judged)
    values = np.exp(x)
    for name, value in zip(fit.fitted, values, strict=False):
        print(f"{name:16} {fit.machine[name]:12.5g} -> {value:.4g}")
    for (name, field), scale in zip(fit.corrections, values[len(fit.fitted) :], strict=True):
        old = np.unique(fit.work[field][fit.names == name])
        print(f"{name} {field}: times {scale:.3f}:", ", ".join(f"{v:g} -> {v * scale:.4g}" for v in old if v > 0))


if __name__ == "__main__":
    main()
