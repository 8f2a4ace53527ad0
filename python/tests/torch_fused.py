"""Programs that the graph pass has seen, without PyTorch's code generator: quick, and their graphs can be looked at."""

import functools

import torch
import torch._inductor.config as config
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes.joint_graph import joint_graph_passes

import tconv.torch as tt


class Programs:
    """A backend of torch.compile that keeps the graphs, which are run node by node."""

    def __init__(self, **options):
        self.options = options
        self.graphs = []
        self.saved = []  # bytes that the forward pass keeps for the backward pass

    def __call__(self, model, inputs):
        backend = aot_autograd(
            fw_compiler=self._keep,
            bw_compiler=self._keep,
            inference_compiler=lambda graph, inputs: self._keep(self._passes(graph), inputs),
            partition_fn=self._partition,
            decompositions=select_decomp_table,
        )
        return backend(model, inputs)

    def _passes(self, graph):
        options = tt.fusion_options(**self.options) if self.options is not None else {}
        with config.patch(options):
            return joint_graph_passes(graph)

    def _partition(self, graph, inputs, **more):
        graph = self._passes(graph)
        forward, backward = min_cut_rematerialization_partition(graph, inputs, **more)
        placeholders = [node for node in backward.graph.nodes if node.op == "placeholder"]
        self.saved.append(
            sum(
                node.meta["val"].numel() * node.meta["val"].element_size()
                for node in placeholders
                if isinstance(node.meta.get("val"), torch.Tensor) and "tangents" not in node.name
            )
        )
        return forward, backward

    def _keep(self, graph, inputs):
        self.graphs.append(graph)
        return make_boxed_func(graph.forward)

    def nodes(self, name=""):
        """The operators called in all graphs whose names have this part."""
        return [
            node
            for graph in self.graphs
            for node in graph.graph.nodes
            if node.op == "call_function" and name in str(node.target)
        ]

    def lists(self):
        """The post-ops of the layers, as text."""
        return [node.args[8] for node in self.nodes("_post")]


class Unfused(Programs):
    def __init__(self):
        super().__init__()
        self.options = None


def compiled(function, programs, **more):
    return torch.compile(function, backend=programs, **more)


@functools.cache
def layer_of(spatial=2, groups=1):
    kind = tt.ConvTranspose2d if spatial == 2 else tt.ConvTranspose1d
    return kind(4, 6, 3, stride=2, padding=1, groups=groups)
