"""Compiled Triton kernels without a GPU: their PTX runs in numpy, thread by thread.

``decode`` reads PTX, ``arithmetic`` computes, ``memory`` watches who touched what, and
``machine`` runs warps. ``launch.Simulator.launch`` takes the place of the launcher of
``smoothsp._kernels``.

A launch fails where a thread leaves the memory of an argument, where two threads touch
a place without a barrier between them and change it, where threads wait at a barrier
for others that do not come, where a loop does not end, and at an unknown instruction.
In global memory only a kernel's own ``debug_barrier`` counts: the compiler adds its own
for shared memory, and its next version may add fewer.

Not modelled: what ptxas makes of PTX, memory whose order is weaker than barriers
promise, caches, and instructions that no kernel here uses: atomics, asynchronous
copies, clusters, tensor memory.
"""
