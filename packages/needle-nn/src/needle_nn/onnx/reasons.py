"""The ops of `needle.ops` that have no converter, and why."""

from needle import ops

_BACKWARD = "is made by backward alone, and a graph of gradients is not exported"

NOT_EXPRESSIBLE: dict[type, str] = {
    ops.Dropout: "draws random numbers: it is there in training only, and models are exported in evaluation",
    ops.FitTo: "is made by lazy mode alone, and models are traced without it",
    **dict.fromkeys(
        [
            ops.TanhGrad,
            ops.SigmoidGrad,
            ops.ReLUGrad,
            ops.GELUGrad,
            ops.SiLUGrad,
            ops.SoftmaxGrad,
            ops.LogSoftmaxGrad,
            ops.LogSumExpGrad,
            ops.Conv2dWeightGrad,
            ops.AvgPool2dGrad,
            ops.FusedGradient,
            ops.FusedGradients,
            ops.FusedTupleGradient,
            ops.AddAt,
            ops.ScatterAdd,
            ops.RowsProduct,
            ops.ScaledDifference,
        ],
        _BACKWARD,
    ),
}
