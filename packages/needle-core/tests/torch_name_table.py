"""Every second spelling at work, as text that runs with `t` as needle and as torch: the table behind test_torch_names.py.

x, y are (2, 3) floats that require a gradient, y between 0.2 and 0.8; s is square, v of three elements, w of four; k are
integers (2, 3) from 0 to 2, p those of which no row holds one twice, b bools (2, 3), d a batch (2, 3, 4), z a clone of x, to be
written to, c a constant (2, 3).
"""

BOTH = """
x.add(y, alpha=2) | t.add(x, y) | x.sub(y, alpha=2) | t.sub(x, 2) | t.subtract(x, y) | x.mul(y) | t.mul(x, 3) | x.multiply(y)
x.div(y) | t.div(c, 0.7, rounding_mode="floor") | t.div(x, y, rounding_mode="trunc") | x.true_divide(y) | t.true_divide(x, 2)
x.divide(y) | x.pow(2) | t.pow(x, 3) | t.pow(y, v) | x.neg() | t.neg(x) | t.negative(x) | x.square() | t.square(x)
y.reciprocal() | t.reciprocal(y) | y.rsqrt() | t.rsqrt(y) | x.clamp(-0.5, 0.5) | t.clamp(x, min=0) | x.clamp(max=y)
t.clamp(x, min=-y, max=y) | x.absolute() | x.lerp(y, 0.3) | t.lerp(x, y, y) | x.addcmul(y, y, value=2) | t.addcmul(x, x, y)
x.addcdiv(x, y, value=0.5) | t.addcdiv(x, x, y) | x.eq(x) | t.eq(x, 0) | x.ne(y) | t.ne(x, y) | x.lt(y) | t.lt(x, 0) | x.le(y)
t.le(x, y) | x.gt(0) | t.gt(x, y) | x.ge(y) | t.ge(x, 0) | x.isclose(x + 1e-9) | t.isclose(x, y) | t.allclose(x, x)
x.allclose(y) | s.mm(s) | t.mm(s, s) | d.bmm(d.transpose(1, 2)) | t.bmm(d, d.transpose(1, 2)) | s.mv(v) | t.mv(s, v) | v.dot(v)
t.dot(v, v) | s.addmm(s, s, beta=2, alpha=0.5) | t.addmm(s, s, s) | v.outer(w) | t.outer(v, w) | s.trace() | t.trace(s)
x.norm() | x.norm(1) | x.norm(2, dim=1) | t.norm(x, dim=0, keepdim=True) | x.norm(3.0, dim=1) | x.norm(float("inf"), dim=1)
t.norm(x, p=float("-inf")) | x.norm(0) | x.norm("fro") | (c * 0).norm() | x.unsqueeze(0) | t.unsqueeze(x, -1)
x.unsqueeze(dim=1) | x.t() | t.t(x) | v.t() | d.ravel() | t.ravel(x) | x.numel() | t.numel(x) | d.movedim(0, -1)
t.movedim(d, (0, 1), (1, 0)) | x.unbind() | t.unbind(x, dim=1) | x.repeat_interleave(2, dim=1) | t.repeat_interleave(v, 3)
t.repeat_interleave(v, t.tensor([0, 1, 2])) | x.index_select(1, t.tensor([2, 0])) | t.index_select(x, 0, t.tensor([1]))
x.masked_fill(b, 0.5) | t.masked_fill(x, b, -1e9) | x.masked_select(b) | t.masked_select(x, b) | x.take_along_dim(k, 1)
t.take_along_dim(x, k, dim=1) | x.scatter(1, p, y) | t.scatter(c, 1, k[:, :1], 9.0) | c.scatter(0, k[:1] % 2, y.detach())
x.scatter_add(1, k, y) | t.scatter_add(c, 1, k, y) | x.index_add(1, t.tensor([2, 0, 2]), y, alpha=2)
t.index_add(x, 0, t.tensor([1, 1]), y) | v.median() | t.median(d.detach()) | t.median(x, dim=1).values
x.median(1, keepdim=True).indices | t.sum(x, dim=1, keepdim=True) | t.log_softmax(x, dim=0) | x.log_softmax(dim=1)
t.absolute(x) | y.arcsin() | t.arccos(y) | x.arctan() | t.arctan2(x, y) | t.arcsin(y) | y.arccos() | t.arctan(x) | x.arctan2(y)
x.negative() | x.subtract(y)
"""

SAME = """
y.acos() | (y + 1).acosh() | x.amax(1) | x.amin(dim=0, keepdim=True) | t.amax(x) | t.amin(x, dim=(0, 1)) | v.argsort()
x.argsort(dim=0, descending=True) | y.asin() | x.asinh() | x.atan() | x.atan2(y) | y.atanh() | t.tensor([1, 3, 1]).bincount()
t.bincount(t.tensor([0, 2]), minlength=5) | k.bitwise_and(1) | k.bitwise_left_shift(2) | k.bitwise_not() | k.bitwise_or(4)
k.bitwise_right_shift(1) | k.bitwise_xor(3) | b.bitwise_not() | x.ceil() | d.chunk(3, dim=2) | t.chunk(d, 2, dim=1) | x.cosh()
x.count_nonzero(dim=1) | t.count_nonzero(b) | x.cumprod(1) | t.cumprod(x, dim=0) | v.diag() | s.diag(1) | t.diag(v, -1)
x.diff() | t.diff(x, dim=0) | x.erf() | x.expm1() | d.flatten() | d.flatten(1) | t.flatten(d, start_dim=1, end_dim=2)
x.floor() | c.floor_divide(2) | x.gather(1, k) | t.gather(x, 1, k) | t.gather(x, dim=0, index=k % 2) | x.greater(y)
x.greater_equal(y) | x.hypot(y) | x.isfinite() | t.isin(k, t.tensor([1, 2])) | x.isinf() | x.isnan() | x.less(y)
x.less_equal(y) | y.log10() | y.log1p() | y.log2() | x.logaddexp(y) | b.logical_and(x > 0) | b.logical_not()
b.logical_or(x > 0) | b.logical_xor(x > 0) | x.maximum(y) | x.minimum(y) | d.moveaxis(0, 2) | x.narrow(1, 1, 2)
t.narrow(x, 0, 0, 1) | b.nonzero(as_tuple=True) | t.nonzero(x > 0, as_tuple=True) | x.prod() | x.prod(1)
t.prod(x, dim=0, keepdim=True) | x.remainder(0.7) | x.roll(1) | x.roll(-1, 1) | t.roll(x, shifts=(1, 2), dims=(0, 1))
x.round() | x.sign() | x.signbit() | x.sinh() | x.sort().values | x.sort(dim=0, descending=True).indices | t.sort(x, dim=1)[0]
x.tan() | x.tile((2, 2)) | t.tile(v, (2,)) | x.topk(2).values | x.topk(2, dim=1, largest=False).indices | t.topk(v, 1)[0]
s.tril(diagonal=-1) | t.triu(s, diagonal=1) | t.diag(s, diagonal=1) | s.triu(diagonal=1) | t.sum(input=x, dim=1)
t.gather(input=x, dim=1, index=k) | t.cat(tensors=(x, y), dim=1) | t.einsum("ij,kj->ik", x, y) | t.topk(input=x, k=2, dim=1).values
s.tril() | s.triu(1) | t.tril(s, -1) | t.triu(d) | x.trunc() | k.unique() | t.unique(k, return_counts=True)
t.unique(k, return_inverse=True) | t.searchsorted(t.tensor([1.0, 2.0]), t.tensor([1.5]))
t.searchsorted(t.tensor([1.0, 2.0]), t.tensor([1.0]), right=True) | t.where(b, x, y) | t.where(b)
t.meshgrid(v, w, indexing="ij") | t.stack([x, y], dim=-1) | t.squeeze(x[:1], dim=0) | t.flip(x, dims=(1,))
t.argmax(x, dim=1, keepdim=True) | t.mean(x, dim=1) | t.logsumexp(x, dim=1) | t.softmax(x, dim=0) | t.cumsum(x, dim=1)
t.permute(d, dims=(2, 0, 1)) | t.transpose(d, 1, 2) | t.all(b, dim=1) | t.transpose(d, dim0=0, dim1=2)
t.any(b, dim=0, keepdim=True) | t.argmin(x, dim=0) | t.split(x, 2, dim=1) | t.split(d, [1, 2], dim=1) | t.clip(x, min=0, max=1)
t.einsum("ij,kj->ik", x, y) | t.matmul(s, v) | t.hypot(x, y) | t.logaddexp(x, y) | t.max(x, dim=1).values
t.min(x, dim=0).indices | t.max(x, y) | x.silu() if hasattr(x, "silu") else t.nn.functional.silu(x)
t.nn.functional.gelu(x) if not hasattr(x, "gelu") else x.gelu()
"""

METHODS = """
x.size() == (2, 3) | d.size(1) | d.size(-1) | x.view(3, 2) | x.view(-1) | x.view((6, 1)) | d.view(d.size(0), -1)
x.view_as(t.zeros(3, 2)) | x.reshape_as(t.zeros(6)) | v.expand(2, 3) | x[:, :1].expand(-1, 4) | v.expand((2, 3))
v.expand_as(x) | v.repeat(2, 2) | x.repeat(1, 2) | x.repeat((2, 1, 1)) | x.split(1) | x.split(2, dim=1) | d.split([1, 2], 1)
d.dim() | x.nelement() | x.contiguous() | x.is_contiguous() | x.t().is_contiguous() | x.float() | x.double() | k.int()
x.long() | k.bool() | k.byte() | k.type_as(x) | x.is_floating_point() | k.is_floating_point() | x.cpu() | x.get_device()
x.is_cuda | x.is_cpu | x.is_mps | x.is_meta | x.is_sparse | x.is_quantized | x.is_nested | x.itemsize | x.ndimension()
x.new(2, 3).shape == (2, 3) | x.new_empty(2, 3).shape == (2, 3)
x.new_zeros(2, 2) | x.new_zeros((3,)) | x.new_ones(2) | x.new_full((2,), 7.0) | k.new_tensor([1.5, 2.0])
x.new_tensor([1, 2]) | x.where(b, y) | x.to(t.float64) | x.to(k) | k.to(dtype=t.float32) | x.to("cpu") | x.type(t.float64)
x.max(dim=1).values | x.max(dim=1, keepdim=True).indices | x.min(dim=0)[0] | x.sum(dim=1, keepdim=True) | x.mean(dim=(0, 1))
x.var(dim=1, unbiased=True) | x.std(dim=0, correction=1) | x.var(unbiased=False) | x.argmax(dim=1)
x.argmin(dim=0, keepdim=True) | x.softmax(dim=1) | b.any(dim=1) | b.all(dim=0, keepdim=True) | x.cumsum(dim=0)
x.logsumexp(dim=1) | x[:1].squeeze(dim=0) | x.flip(0, 1) | x.flip(dims=(0,)) | d.permute(2, 0, 1) | d.transpose(1, 2)
x.swapaxes(0, 1) | x.item() if x.numel() == 1 else x[0, 0].item() | c.tolist() | ~b | b & (x > 0) | b | (x > 0) | b ^ (x > 0)
c // 0.5 | x % 0.5 | 1 // y.detach() | 2 % c | k & 1 | -x | abs(x) | x @ y.t()
"""

IN_PLACE = """
z.add_(y) | z.add_(y, alpha=2) | z.sub_(1) | z.mul_(y) | z.div_(y) | z.pow_(2) | z.neg_() | z.square_() | z.clamp_(-0.5, 0.5)
z.clip_(0, 1) | z.lerp_(y, 0.5) | z.addcmul_(y, y) | z.addcdiv_(y, y, value=2) | z.masked_fill_(b, 0) | z.scatter_(1, k, 0.5)
z.scatter_add_(1, k, y) | z.index_add_(0, t.tensor([0, 0]), y) | z.abs_() | z.exp_() | z.abs_().log_() | z.abs_().sqrt_()
z.sin_() | z.cos_() | z.tanh_() | z.sigmoid_() | z.relu_() | z.floor_() | z.ceil_() | z.round_() | z.tril_() | z.triu_(1)
c.floor_divide_(2) | z.remainder_(0.7) | z.abs_().reciprocal_() | z.abs_().rsqrt_() | z.fill_(3) | z.zero_() | z.copy_(y)
z.copy_(v) | c.add_(1).mul_(2) | c.copy_(t.tensor([1, 2, 3])) | c.normal_().shape == (2, 3) | c.uniform_(2, 3) > 1.5
c.bernoulli_(0.0) | c.fill_(2.5) | c.exponential_() > 0 | c.random_(5) < 5 | c.fill_diagonal_(7)
y.clone().acos_() | y.clone().asin_() | z.atan_() | z.sinh_() | z.cosh_() | z.tan_() | z.erf_() | z.expm1_() | y.clone().log1p_()
y.clone().log2_() | y.clone().log10_() | z.sign_() | z.trunc_() | z.negative_() | z.nan_to_num_() | z.cumsum_(1) | z.cumprod_(0)
z.subtract_(y) | z.multiply_(y) | z.divide_(y) | z.true_divide_(y) | z.fmod_(0.7) | z.clamp_min_(0.1) | z.clamp_max_(0.1)
c.eq_(c) | c.ne_(y) | c.lt_(y) | c.le_(y) | c.gt_(y) | c.ge_(0) | s.clone().addmm_(s, s, beta=0.5, alpha=2)
z.index_fill_(1, t.tensor([0, 2]), 0.5) | z.index_copy_(0, t.tensor([1, 0]), y) | z.masked_scatter_(b, y)
c.scatter_reduce_(1, k, y.detach(), 'sum') | z.index_put_((t.tensor([0, 1]), t.tensor([2, 2])), v[:2])
z.index_put_((t.tensor([0, 0]), t.tensor([2, 2])), t.tensor([1.0, 2.0]), accumulate=True)
c.index_put_((t.tensor([1]),), t.tensor(3.0))
t.index_put(x, (t.tensor([0, 1, 1]),), y[0], accumulate=True) | x.index_put((b,), t.tensor(0.5))
"""

CREATION = """
t.tensor([1, 2]) | t.tensor([1.0, 2.0]) | t.tensor([[True]]) | t.tensor(3) | t.tensor([1, 2], dtype=t.float32)
t.tensor(numpy.ones(2)) | t.tensor([1.5], requires_grad=True).requires_grad | t.as_tensor([1, 2])
t.from_numpy(numpy.arange(3)) | t.arange(4) | t.arange(1, 7, 2) | t.arange(0, 1, 0.25) | t.arange(2.0)
t.arange(start=1, end=3) | t.linspace(0, 1, 5) | t.linspace(0, 1, steps=3) | t.full((2, 2), 7) | t.full((2,), 0.5)
t.full((1,), True) | t.full_like(k, 3) | t.empty(2, 3).shape == (2, 3) | t.empty_like(k).shape == (2, 3) | t.eye(3)
t.eye(2, 3) | t.zeros(2, 3) | t.zeros((2,), dtype=t.long) | t.ones(2, dtype=t.bool) | t.zeros_like(k) | t.ones_like(x)
x.type(t.DoubleTensor) | k.type("torch.FloatTensor") | x.type(t.LongTensor)
t.FloatTensor([1, 2]) | t.LongTensor([1.0, 2.0]) | t.BoolTensor([1, 0]) | t.DoubleTensor([1]) | t.IntTensor([3])
t.rand(2, 3).shape == (2, 3) | t.randn((2,)).dtype == t.float32 | t.rand_like(x).shape == (2, 3)
t.randn_like(x).shape == (2, 3) | t.randint(3, 4, (2,)) | t.randint(1, (2,)) | t.randint(0, 1, size=(2,)) | t.randint_like(k, 1)
t.randperm(4).sort().values | t.normal(0.0, 1.0, (2, 2)).shape == (2, 2) | t.normal(c * 0 + 5, c * 0) | t.bernoulli(c * 0 + 1)
t.multinomial(t.tensor([0.0, 1.0]), 3, replacement=True) | t.multinomial(t.tensor([[1.0, 1.0, 0.0]]), 2).sort().values
t.rand(3, generator=t.Generator().manual_seed(0)).shape == (3,) | t.manual_seed(0) is not 0
t.Generator().manual_seed(5).initial_seed()
"""

FUNCTIONS = """
t.cat([x, y]) | t.cat((x, y), dim=1) | t.concat([x, y], dim=-1) | t.hstack([x, y]) | t.vstack([x, y]) | t.hstack([v, w])
t.vstack([v, v]) | t.broadcast_tensors(x, v) | t.autograd.grad((x * y).sum(), [x, y]) | t.autograd.grad(x * x, x, t.ones(2, 3))
t.is_tensor(x) | t.is_tensor(3) | t.is_floating_point(k) | str(t.device("cpu"))[:3] | t.finfo(t.float32).eps
t.iinfo(t.int32).max | t.can_cast(t.int32, t.int64) | t.pi | t.e | t.inf | t.nan != t.nan
t.promote_types(t.float32, t.float64) == t.float64 | t.result_type(x, k) == t.float32 | t.result_type(k, 1.5) == t.float32
t.promote_types(t.int64, t.float32) == t.float32 | t.uint8 == k.byte().dtype | t.get_num_threads() > 0
t.broadcast_shapes((2, 1), (3,)) == (2, 3) | t.from_dlpack(c) | x[:, t.newaxis].shape == (2, 1, 3)
t.set_num_threads(t.get_num_threads()) | t.set_float32_matmul_precision('high')
t.float == t.float32 | t.double == t.float64 | t.int == t.int32 | t.long == t.int64
t.zeros(1, dtype=t.bool).dtype == t.bool | t.dtype is not None
"""

PRODUCTS = """
t.cdist(x, y) | t.cdist(d, d + 1) | t.cdist(x, y, p=1.0) | t.kron(s, x) | v.kron(w) | t.kron(v, x) | t.cross(s, s.t(), dim=1)
t.linalg.cross(x, y) | s.cross(s + 1, dim=0) | t.tensordot(d, d, dims=([0, 2], [0, 2])) | t.tensordot(x, d, dims=([1], [1]))
t.tensordot(v, s, 1) | t.linalg.norm(x) | t.linalg.norm(v, 1) | t.linalg.norm(x, dim=1, keepdim=True) | t.linalg.vector_norm(x, 3)
t.linalg.vector_norm(x, dim=0) | t.linalg.vecdot(x, y, dim=0) | t.linalg.multi_dot([x, s, v]) | t.linalg.matmul(s, v)
t.linalg.matrix_power(s, 3) | t.linalg.diagonal(s)
"""

ORDERING = """
t.quantile(x, 0.4) | x.quantile(0.25, dim=1) | t.quantile(x, t.tensor([0.1, 0.5, 1.0]), dim=1, keepdim=True)
t.quantile(x, t.tensor([0.0, 0.7])) | x.quantile(0.5, keepdim=True) | x.quantile(0.3, dim=0, keepdim=True)
x.kthvalue(2, dim=1).values | t.kthvalue(x, 1, dim=0, keepdim=True)[0] | v.kthvalue(3).indices
t.bucketize(x, t.tensor([-1.0, 0.0, 1.0])) | t.bucketize(t.tensor([1, 3]), t.tensor([1, 3]), right=True, out_int32=True)
d.unfold(1, 2, 1) | d.unfold(-1, 3, 1) | w.unfold(0, 2, 2) | t.nansum(x / (x > 0)) | (c / (c > 0) * 0).nanmean(dim=1)
t.nansum(x, dim=0, keepdim=True) | x.nanmean() | c.round(decimals=1) | t.round(c * 10, decimals=-1) | k.round()
"""

TYPES = """
t.ByteTensor([1, 2]) | isinstance((2, 3), t.Size) or t.Size((2, 3)) == (2, 3) | x.contiguous(memory_format=t.contiguous_format)
t.accelerator.is_available() | t.accelerator.device_count() | x.is_leaf == True | (x * 2).is_leaf == True | x.grad_fn is None
(x * 2).grad_fn is None | t.autograd.functional.jacobian(lambda a: a * a, v)
t.autograd.functional.hessian(lambda a: (a**3).sum(), v)
t.autograd.functional.jacobian(lambda a, b: a @ b, (s, v)) | t.autograd.functional.hessian(lambda a, b: (a * b).sum(), (v, v))
t.autograd.functional.jacobian(lambda a: a * a, (v,)) | t.autograd.backward([(x * 2).sum(), (x * y).sum()])
t.autograd.backward(x * y, t.ones(2, 3)) | t.testing.assert_close(x, x + 1e-9)
t.autograd.gradcheck(lambda a: a**3, (x.detach().double().requires_grad_(),))
"""

MODES = """
with t.no_grad(): r = (x * 2).requires_grad
with t.inference_mode(): r = (x * 2).requires_grad
with t.set_grad_enabled(False): r = (x * 2).requires_grad
"""


def rows(text: str) -> list[str]:
    """Expressions by lines and ` | ` between them; what holds that operator itself stands in brackets."""
    found = []
    for line in text.strip().splitlines():
        parts = line.split(" | ")
        while parts:
            part = parts.pop(0)
            if part == "b" and parts:  # b | (x > 0) is one expression
                part = f"b | {parts.pop(0)}"
            found.append(part.strip())
    return found


EXPRESSIONS = [
    row
    for text in (BOTH, SAME, METHODS, IN_PLACE, CREATION, FUNCTIONS, PRODUCTS, ORDERING, TYPES)
    for row in rows(text)
]
