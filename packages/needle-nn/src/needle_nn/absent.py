"""What to say of PyTorch's names that are not here: what is here instead."""

from collections.abc import Callable
from typing import Any

_THREE = "of volumes there are Conv3d, ConvTranspose3d, MaxPool3d, AvgPool3d, AdaptiveAvgPool3d and BatchNorm3d"
_LAZY = "sizes are given: Linear(in_features, out_features), Conv2d(in_channels, ...)"
_RANKS = "needle.distributed.replicate(model) sums gradients over the ranks of a job"
_JACOBIAN = "log_prob of the base plus the logarithm of the Jacobian's determinant is it"

NN: dict[str, str] = {
    **dict.fromkeys(["InstanceNorm3d", "AdaptiveMaxPool3d", "adaptive_max_pool3d", "MaxUnpool3d", "FractionalMaxPool3d"], _THREE),
    **dict.fromkeys(["ReflectionPad3d", "ReplicationPad3d", "ConstantPad3d", "ZeroPad3d"], "nn.functional.pad takes volumes"),
    **dict.fromkeys(["LazyLinear", "LazyConv1d", "LazyConv2d", "LazyBatchNorm1d", "LazyBatchNorm2d"], _LAZY),
    **dict.fromkeys(["DataParallel", "SyncBatchNorm"], _RANKS),
    "CTCLoss": "CrossEntropyLoss takes labels that are aligned",
    "AdaptiveLogSoftmaxWithLoss": "CrossEntropyLoss over all classes is there",
    "Softmax2d": "Softmax(dim=1) is it",
    "NLLLoss2d": "NLLLoss takes images of labels",
    "RReLU": "LeakyReLU and PReLU are there",
    **dict.fromkeys(["Fold", "fold"], "ConvTranspose2d puts windows together"),
    **dict.fromkeys(["grid_sample", "affine_grid"], "nn.functional.interpolate resizes; indexing picks pixels"),
    **dict.fromkeys(["LocalResponseNorm", "local_response_norm"], "GroupNorm and BatchNorm2d are there"),
    **dict.fromkeys(["LPPool1d", "LPPool2d"], "AvgPool2d of powers is it"),
    **dict.fromkeys(["MultiMarginLoss", "MultiLabelMarginLoss"], "BCEWithLogitsLoss is for several labels"),
    "MultiLabelSoftMarginLoss": "BCEWithLogitsLoss is it",
    **dict.fromkeys(["CircularPad1d", "CircularPad2d"], "nn.functional.pad(x, widths, mode='circular') is it"),
    **dict.fromkeys(["relu_", "leaky_relu_", "elu_", "selu_", "hardtanh_"], "the function without _ gives a new tensor"),
    "multi_head_attention_forward": "nn.MultiheadAttention, and scaled_dot_product_attention",
    **dict.fromkeys(["LazyBatchNorm3d", "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyInstanceNorm2d"], _LAZY),
    **dict.fromkeys(["UninitializedParameter", "UninitializedBuffer"], _LAZY),
    "Buffer": "register_buffer(name, tensor) makes one",
    **dict.fromkeys(["ChannelShuffle", "channel_shuffle"], "reshape, permute and reshape again is it"),
    **dict.fromkeys(["RNNBase", "RNNCellBase"], "RNN, GRU, LSTM and their cells are there"),
    **dict.fromkeys(["FractionalMaxPool2d", "fractional_max_pool2d"], "MaxPool2d and AdaptiveMaxPool2d are there"),
    **dict.fromkeys(
        ["TripletMarginWithDistanceLoss", "triplet_margin_with_distance_loss"],
        "relu(d(a, p) - d(a, n) + margin).mean() is it",
    ),
    **dict.fromkeys(["FeatureAlphaDropout", "feature_alpha_dropout"], "AlphaDropout and Dropout2d are there"),
    **dict.fromkeys(["lp_pool1d", "lp_pool2d"], "avg_pool2d of powers is it"),
    **dict.fromkeys(["rrelu", "rrelu_"], "leaky_relu and prelu are there"),
    **dict.fromkeys(["celu_", "threshold_"], "the function without _ gives a new tensor"),
    **dict.fromkeys(["multi_margin_loss", "multilabel_margin_loss"], "binary_cross_entropy_with_logits is for several labels"),
    "multilabel_soft_margin_loss": "binary_cross_entropy_with_logits is it",
    **dict.fromkeys(["upsample_nearest", "upsample_bilinear"], "interpolate(x, size, scale_factor, mode) is it"),
    **dict.fromkeys(
        ["max_pool1d_with_indices", "max_pool2d_with_indices"],
        "max_pool2d(x, k, return_indices=True) is it",
    ),
    "pdist": "needle.cdist(x, x) has all distances",
    "grad": "needle.autograd.grad computes gradients",
    **dict.fromkeys(["intrinsic", "qat", "quantizable", "quantized"], "nn.quantize makes weights of eight bits"),
    "ctc_loss": "cross_entropy takes labels that are aligned",
}  # fmt: skip

OPTIM: dict[str, str] = {
    "SparseAdam": "gradients are dense: Adam",
    **dict.fromkeys(["Adafactor", "Muon"], "SGD, AdamW, RMSprop, Adagrad, NAdam, RAdam and Lion are there"),
}  # fmt: skip

DATA: dict[str, str] = {
    "get_worker_info": "workers are threads of this process",
    "DistributedSampler": "needle.distributed.shared(dataset) gives each rank its part",
    "ChainDataset": "ConcatDataset joins datasets, itertools.chain iterables",
}

DISTRIBUTIONS: dict[str, str] = {
    **dict.fromkeys(
        ["Beta", "Gamma", "Dirichlet", "StudentT", "Chi2", "Poisson"], "there is no derivative of the gamma function"
    ),
    **dict.fromkeys(
        ["Binomial", "Multinomial", "NegativeBinomial", "Wishart", "FisherSnedecor", "LKJCholesky"],
        "there is no log-gamma function",
    ),
    **dict.fromkeys(
        ["LogNormal", "HalfNormal", "Cauchy", "HalfCauchy", "Gumbel", "Weibull", "Pareto"],
        "Normal, Laplace, Exponential and Uniform are there",
    ),
    **dict.fromkeys(
        ["OneHotCategorical", "OneHotCategoricalStraightThrough"],
        "Categorical, and nn.functional.one_hot of its samples",
    ),
    **dict.fromkeys(["RelaxedBernoulli", "RelaxedOneHotCategorical"], "nn.functional.gumbel_softmax draws them"),
    "MixtureSameFamily": "logsumexp(mixture.logits + components.log_prob(x), -1) is its log_prob",
    "LowRankMultivariateNormal": "MultivariateNormal(loc, W @ W.mT + D) is it",
    "Geometric": "Categorical and Bernoulli are there",
    **dict.fromkeys(
        ["transforms", "constraints", "AffineTransform", "TanhTransform", "SigmoidTransform", "ExpTransform"], _JACOBIAN
    ),
    "TransformedDistribution": _JACOBIAN,
}


def says(module: str, hints: dict[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` of a module: an AttributeError that says what there is in the place of a name.

    >>> says("needle.nn", NN)("Softmax2d")
    Traceback (most recent call last):
    AttributeError: needle.nn has no 'Softmax2d'; Softmax(dim=1) is it
    """

    def missing(name: str) -> Any:
        hint = f"; {hints[name]}" if name in hints else ""
        raise AttributeError(f"{module} has no {name!r}{hint}", name=name)

    return missing
