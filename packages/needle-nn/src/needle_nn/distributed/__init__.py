"""Several processes that compute together: communicators, differentiable collectives. Users reach it as needle.distributed."""

# The modules, from what stands alone to what uses the others:
#   trees         the order in which what ranks bring is combined
#   communicator  the verbs, what they take and give; `Alone`, the communicator of one process
#   agreement     whether all ranks make the same call
#   watchdog      the thread that ends a job in which a call never ends
#   mpi           the communicator over mpi4py, which uses both
#   starting      which of them this process has
#   ops           the verbs as operators with gradients
#   pipeline      a chain of layers cut over ranks
#   cutting       any recorded graph cut over ranks
#   tensors       layers cut within: columns, rows, heads
#   norms         batch norm over all ranks
#   launching     starting a program as several ranks; worker is what runs in each
#   parts         the tree over the parts of a step, and which of them a rank has
#   flat          arrays of several parameters as one
#   overlap       gradients that travel during backward
#   parallel      replicas, and the sum of their gradients
#   gathering     states of all ranks on rank 0
#   sharding      optimizers whose states are shared out

from needle_nn.distributed.communicator import Alone, Communicator, DistributedError
from needle_nn.distributed.cutting import Cut
from needle_nn.distributed.norms import SyncBatchNorm, synchronised
from needle_nn.distributed.ops import all_gather, all_reduce, all_to_all, broadcast, recv, reduce_scatter, send
from needle_nn.distributed.parallel import replicate, shared, sum_gradients
from needle_nn.distributed.pipeline import Pipeline
from needle_nn.distributed.sharding import sharded
from needle_nn.distributed.starting import current, init
from needle_nn.distributed.tensors import ColumnLinear, HeadsAttention, RowEmbedding, RowLinear, ShardedLayer
from needle_nn.distributed.trees import tree_reduce

__all__ = ["Alone", "Communicator", "Cut", "DistributedError", "Pipeline", "current", "init", "tree_reduce"]
__all__ += ["all_gather", "all_reduce", "all_to_all", "broadcast", "recv", "reduce_scatter", "send"]
__all__ += ["replicate", "sharded", "shared", "sum_gradients"]
__all__ += ["ColumnLinear", "HeadsAttention", "RowEmbedding", "RowLinear", "ShardedLayer"]
__all__ += ["SyncBatchNorm", "synchronised"]
