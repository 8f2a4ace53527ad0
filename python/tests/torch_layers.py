"""What the tests of the shim share."""

import threading

import torch
import torch.nn.functional as F

import tconv.torch as tt
from tconv._plan import forget_plans

# By the number of spatial axes: the package's, PyTorch's.
FUNCTIONS = {
    1: (tt.conv_transpose1d, F.conv_transpose1d),
    2: (tt.conv_transpose2d, F.conv_transpose2d),
    3: (tt.conv_transpose3d, F.conv_transpose3d),
}


def tensors(device="cpu", spatial=2, requires_grad=False):
    axes = (3, 5, 6)[-spatial:]
    made = torch.randn(2, 4, *axes, device=device), torch.randn(4, 3, *[2] * spatial, device=device)
    return [*(t.requires_grad_(requires_grad) for t in made), torch.randn(3, device=device)]


def in_threads_that_forget(work):
    """Calls work with a number in each of four threads, while another forgets plans."""
    over = threading.Event()

    def forget():
        while not over.is_set():
            forget_plans()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    forgetter = threading.Thread(target=forget)
    for thread in (*threads, forgetter):
        thread.start()
    for thread in threads:
        thread.join()
    over.set()
    forgetter.join()
