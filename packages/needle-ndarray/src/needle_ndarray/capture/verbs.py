"""What every verb writes: the table that lets a plan be reordered, trimmed and packed."""

from needle_ndarray.backend import Op

_NAMES = {
    "from_host": "values out",
    "fill": "out value",
    "copy": "a out",
    "unary": "op a out",
    "binary": "op a b out",
    "where": "condition a b out",
    "reduce": "op a out axes",
    "arg_reduce": "op a out axis",
    "scan": "op a out axis",
    "matmul": "a b out",
    "take": "a index out",
    "scatter": "op a index out",
    "random": "op out seed counter",
    "linear": "x weight bias out",
    "matmul_weight": "a weight scale out",
    "rows": "op a out",
    "rows_grad": "op grad x y out",
    "cross_entropy": "logits labels out",
    "cross_entropy_grad": "grad logits labels out",
    "norm": "op x weight bias out mean var eps",
    "norm_grad": "op grad x weight mean var dx dweight dbias eps",
    "attention": "q k v mask out causal scale",
    "attention_grad": "grad q k v mask dq dk dv causal scale",
    "conv2d": "op x weight y stride padding dilation groups",
    "pool2d": "op x out size stride padding",
    "pool2d_grad": "op grad x out size stride padding",
    "cell": "op x y bias state h_out c_out gates",
    "cell_grad": "op dy dh dc gates state c_out dx ds dstate",
    "sequence": "op x weight bias h c gates",
    "sequence_grad": "op dy weight h c gates dx ds dh dc",
    "step": "op params grads m v hyperparameters",
}
#: The arguments of every verb by name, as in `Backend`.
ARGUMENTS = {verb: tuple(names.split()) for verb, names in _NAMES.items()}
#: What a verb writes, where that is not `out` alone.
WRITES = {
    "norm": {"out", "mean", "var"},
    "norm_grad": {"dx", "dweight", "dbias"},
    "attention_grad": {"dq", "dk", "dv"},
    "cell": {"h_out", "c_out", "gates"},
    "cell_grad": {"dx", "ds", "dstate"},
    "sequence": {"h", "c", "gates"},
    "sequence_grad": {"dx", "ds", "dh", "dc"},
    "step": {"params", "m", "v"},
    "conv2d": {"y"},
    "conv2d_input_grad": {"x"},
    "conv2d_weight_grad": {"weight"},
}
#: What it reads before it writes it.
UPDATES = {
    "scatter": {"out"},
    "sequence": {"h", "c"},
    "sequence_grad": {"dh", "dc"},
    "step": {"params", "m", "v"},
}
#: Verbs that raise an error for some values.
CHECKING = {"take", "scatter", "cross_entropy"}
#: Verbs that allow `out` to be the very view of an input.
ELEMENTWISE = {"copy", "unary", "binary", "where"}


def written_by(verb: str, op: Op | None) -> set[str]:
    """Names of the arguments that a call writes."""
    return WRITES.get(op.name if verb == "conv2d" and op else verb, {"out"})
