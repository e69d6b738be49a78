// Elementwise arithmetic: one line for each op of the table. A module holds one of them (-DUNARY_OP=exp) as two kernels: `unary_exp`
// for dense operands and single numbers, `unary_exp_strided` for every other layout. Bound by memory, but for pow, erf and the
// like in float64.

// ---- Loops -------------------------------------------------------------------------------------------------------------

// out = op(a): `a` is dense (step 1), one element (step 0), or null and stands for `value`.
template <class Op>
DEVICE void unary_dense(const T* a, i64 step, T value, typename Op::R* out, i64 n) {
    const i64 fours = aligned(out) && (step == 0 || aligned(a)) ? n / 4 : 0;
    const T one = step ? T(0) : a == 0 ? value : *a;
    FOR_EACH(i, fours) {
        Four<T> x;
        Four<typename Op::R> y;
        if (step) x = ((const Four<T>*)a)[i];
#pragma unroll
        for (int k = 0; k < 4; k++) y.v[k] = Op::of(step ? x.v[k] : one);
        ((Four<typename Op::R>*)out)[i] = y;
    }
    for (i64 i = 4 * fours + THREAD; i < n; i += THREADS) out[i] = Op::of(step ? a[i] : one);
}

template <class Op>
DEVICE void unary_strided(const T* a, typename Op::R* out, const Joint& joint, i64 n) {
    FOR_EACH(i, n) {
        const Places<2> at = places<2>(joint, i);
        out[at.at[0]] = Op::of(a[at.at[1]]);
    }
}

template <class Op>
DEVICE void binary_dense(const T* a, i64 a_step, T a_value, const T* b, i64 b_step, T b_value, typename Op::R* out, i64 n) {
    const i64 fours = aligned(out) && (a_step == 0 || aligned(a)) && (b_step == 0 || aligned(b)) ? n / 4 : 0;
    const T one_a = a_step ? T(0) : a == 0 ? a_value : *a;
    const T one_b = b_step ? T(0) : b == 0 ? b_value : *b;
    FOR_EACH(i, fours) {
        Four<T> x, y;
        Four<typename Op::R> z;
        if (a_step) x = ((const Four<T>*)a)[i];
        if (b_step) y = ((const Four<T>*)b)[i];
#pragma unroll
        for (int k = 0; k < 4; k++) z.v[k] = Op::of(a_step ? x.v[k] : one_a, b_step ? y.v[k] : one_b);
        ((Four<typename Op::R>*)out)[i] = z;
    }
    for (i64 i = 4 * fours + THREAD; i < n; i += THREADS) out[i] = Op::of(a_step ? a[i] : one_a, b_step ? b[i] : one_b);
}

template <class Op>
DEVICE void binary_strided(const T* a, const T* b, typename Op::R* out, const Joint& joint, i64 n) {
    FOR_EACH(i, n) {
        const Places<3> at = places<3>(joint, i);
        out[at.at[0]] = Op::of(a[at.at[1]], b[at.at[2]]);
    }
}

// An op is a struct with its formula; the last lines of this file make kernels of the one that the module is compiled for.
#define UNARY(name, Type, formula)           \
    struct name##_op {                       \
        typedef Type R;                      \
        DEVICE R of(T a) { return formula; } \
    };

#define BINARY(name, Type, formula)               \
    struct name##_op {                            \
        typedef Type R;                           \
        DEVICE R of(T a, T b) { return formula; } \
    };

// ---- Formulas longer than a line -----------------------------------------------------------------------------------------

#ifdef T_FLOATING

DEVICE T signed_zero(bool negative) {
    return negative ? T(-0.0) : T(0.0);
}

// a - floor(a / b) b, with the sign of b
DEVICE T remainder_of(T a, T b) {
    const T r = fmod(a, b);
    if (b == 0) return r; // NaN
    if (r != 0) return (b < 0) != (r < 0) ? r + b : r;
    return signed_zero(b < 0);
}

// floor(a / b), rounded as if from the exact quotient
DEVICE T floor_quotient(T a, T b) {
    if (b == 0) return a / b;
    const T r = fmod(a, b);
    T quotient = (a - r) / b;
    if (r != 0 && (b < 0) != (r < 0)) quotient -= 1;
    if (quotient == 0) return signed_zero(((a < 0) != (b < 0) && a != 0) || (a == 0 && a / b == 0 && 1 / (a / b) < 0));
    const T whole = floor(quotient);
    return quotient - whole > T(0.5) ? whole + 1 : whole;
}

// 1 / (1 + e^-a), by e^-|a|, which does not overflow
DEVICE T sigmoid_of(T a) {
    const T small = exp(-fabs(a));
    return (a < 0 ? small : T(1)) / (1 + small);
}

DEVICE T silu_derivative(T a) {
    const T s = sigmoid_of(a);
    return s * (1 + a * (1 - s));
}

// The distribution function of the standard normal distribution
DEVICE T normal_cdf(T a) {
    return T(0.5) * erfc(-a * T(0.70710678118654752440));
}

// ln(e^a + e^b) by the larger of the two, in double: near 0 the two terms cancel
DEVICE T logaddexp_of(T a, T b) {
    const double high = a >= b ? a : b, low = a >= b ? b : a;
    if (a != a || b != b) return a + b;
    return T(high - low == high - low ? high + log1p(exp(low - high)) : high); // both infinite: their difference is NaN
}

#elif !defined(T_BOOL)

// a 2^b by its bits; 0 where b is negative or no bit is left
DEVICE T shifted_left(T a, T b) {
    return i64(b) >= 0 && i64(b) < i64(8 * sizeof(T)) ? T((unsigned long long)a << b) : T(0);
}

// floor(a / 2^b); what is left of the sign where b is negative or beyond all bits
DEVICE T shifted_right(T a, T b) {
    return i64(b) >= 0 && i64(b) < i64(8 * sizeof(T)) ? T(a >> b) : a < 0 ? T(-1) : T(0);
}

DEVICE T floor_quotient(T a, T b) {
    if (b == 0) return 0;
    if (b == -1) return wrap_subtract(0, a);    // the smallest integer over -1 has no quotient
    return a / b - ((a % b != 0) & ((a < 0) != (b < 0)));
}

DEVICE T remainder_of(T a, T b) {
    if (b == 0 || b == -1) return 0;
    const T r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// a^b by squaring, for b >= 0; wraps
DEVICE T integer_power(T a, T b) {
    T power = 1;
    for (; b > 0; b >>= 1) {
        if (b & 1) power = wrap_multiply(power, a);
        a = wrap_multiply(a, a);
    }
    return power;
}

#endif

// ---- The table -----------------------------------------------------------------------------------------------------------

UNARY(relu, T, a <= T(0) ? T(0) : a)
UNARY(isnan, bool, a != a)
#ifdef T_FLOATING
UNARY(isinf, bool, a - a != 0 && a == a)
UNARY(isfinite, bool, a - a == 0)
UNARY(signbit, bool, copysign(T(1), a) < 0)
UNARY(negative, T, -a)
UNARY(abs, T, fabs(a))
UNARY(sign, T, a != a ? a : T((a > 0) - (a < 0)))
UNARY(floor, T, floor(a))
UNARY(ceil, T, ceil(a))
UNARY(trunc, T, trunc(a))
UNARY(round, T, rint(a))
UNARY(sqrt, T, sqrt(a))
UNARY(rsqrt, T, 1 / sqrt(a))
UNARY(exp, T, exp(a))
UNARY(expm1, T, expm1(a))
UNARY(log, T, log(a))
UNARY(log1p, T, log1p(a))
UNARY(sin, T, sin(a))
UNARY(cos, T, cos(a))
UNARY(tanh, T, tanh(a))
UNARY(sigmoid, T, sigmoid_of(a))
UNARY(erf, T, erf(a))
UNARY(gelu, T, a * normal_cdf(a))
UNARY(silu, T, a * sigmoid_of(a))
UNARY(log2, T, log2(a))
UNARY(log10, T, log10(a))
UNARY(tan, T, tan(a))
UNARY(asin, T, asin(a))
UNARY(acos, T, acos(a))
UNARY(atan, T, atan(a))
UNARY(sinh, T, sinh(a))
UNARY(cosh, T, cosh(a))
UNARY(asinh, T, asinh(a))
UNARY(acosh, T, acosh(a))
UNARY(atanh, T, atanh(a))
#else
UNARY(isinf, bool, false)
UNARY(isfinite, bool, true)
UNARY(floor, T, a)
UNARY(ceil, T, a)
UNARY(trunc, T, a)
UNARY(round, T, a)
#ifdef T_BOOL
UNARY(abs, T, a)
UNARY(logical_not, bool, !a)
UNARY(invert, T, !a)
#else
UNARY(negative, T, wrap_subtract(0, a))
UNARY(abs, T, a < 0 ? wrap_subtract(0, a) : a)
UNARY(sign, T, (a > 0) - (a < 0))
UNARY(invert, T, ~a)
#endif
#endif

BINARY(add, T, wrap_add(a, b))
BINARY(multiply, T, wrap_multiply(a, b))
BINARY(maximum, T, larger(a, b))
BINARY(minimum, T, smaller(a, b))
BINARY(equal, bool, a == b)
BINARY(not_equal, bool, a != b)
BINARY(less, bool, a < b)
BINARY(less_equal, bool, a <= b)
BINARY(greater, bool, a > b)
BINARY(greater_equal, bool, a >= b)
#ifndef T_BOOL
BINARY(subtract, T, wrap_subtract(a, b))
BINARY(floor_divide, T, floor_quotient(a, b))
BINARY(remainder, T, remainder_of(a, b))
BINARY(relu_grad, T, b > 0 ? a : T(0))
#else
BINARY(logical_and, bool, a && b)
BINARY(logical_or, bool, a || b)
BINARY(logical_xor, bool, a != b)
#endif
#ifdef T_FLOATING
BINARY(divide, T, a / b)
BINARY(power, T, pow(a, b))
BINARY(tanh_grad, T, a * ((1 - b) * (1 + b)))
BINARY(sigmoid_grad, T, a * (b * (1 - b)))
BINARY(gelu_grad, T, a * (normal_cdf(b) + b * (exp(b * b * T(-0.5)) * T(0.39894228040143267794))))
BINARY(silu_grad, T, a * silu_derivative(b))
BINARY(atan2, T, atan2(a, b))
BINARY(hypot, T, hypot(a, b))
BINARY(logaddexp, T, logaddexp_of(a, b))
BINARY(copysign, T, copysign(a, b))
BINARY(nextafter, T, nextafter(a, b))
#else
BINARY(bitwise_and, T, a & b)
BINARY(bitwise_or, T, a | b)
BINARY(bitwise_xor, T, a ^ b)
#ifndef T_BOOL
BINARY(power, T, integer_power(a, b))
BINARY(bitwise_left_shift, T, shifted_left(a, b))
BINARY(bitwise_right_shift, T, shifted_right(a, b))
#endif
#endif

// ---- The kernels of one op ---------------------------------------------------------------------------------------------------

#ifdef UNARY_OP
typedef JOIN(UNARY_OP, _op) Chosen;

KERNEL JOIN(unary_, UNARY_OP)(const T* a, i64 step, T value, Chosen::R* out, i64 n) {
    unary_dense<Chosen>(a, step, value, out, n);
}

KERNEL JOIN(JOIN(unary_, UNARY_OP), _strided)(const T* a, Chosen::R* out, const Joint joint, i64 n) {
    unary_strided<Chosen>(a, out, joint, n);
}
#endif

#ifdef BINARY_OP
typedef JOIN(BINARY_OP, _op) Chosen;

KERNEL JOIN(binary_, BINARY_OP)(const T* a, i64 a_step, T a_value, const T* b, i64 b_step, T b_value, Chosen::R* out, i64 n) {
    binary_dense<Chosen>(a, a_step, a_value, b, b_step, b_value, out, n);
}

KERNEL JOIN(JOIN(binary_, BINARY_OP), _strided)(const T* a, const T* b, Chosen::R* out, const Joint joint, i64 n) {
    binary_strided<Chosen>(a, b, out, joint, n);
}
#endif

// ---- where: out = a where condition else b -------------------------------------------------------------------------------

#if !defined(UNARY_OP) && !defined(BINARY_OP)

KERNEL where(const bool* condition, i64 c_step, bool c_value, const T* a, i64 a_step, T a_value, const T* b, i64 b_step, T b_value,
             T* out, i64 n) {
    const bool one_c = c_step ? false : condition == 0 ? c_value : *condition;
    const T one_a = a_step ? T(0) : a == 0 ? a_value : *a;
    const T one_b = b_step ? T(0) : b == 0 ? b_value : *b;
    const bool fit =
        aligned(out) && (c_step == 0 || aligned(condition)) && (a_step == 0 || aligned(a)) && (b_step == 0 || aligned(b));
    const i64 fours = fit ? n / 4 : 0;
    FOR_EACH(i, fours) {
        Four<bool> c;
        Four<T> x, y, z;
        if (c_step) c = ((const Four<bool>*)condition)[i];
        if (a_step) x = ((const Four<T>*)a)[i];
        if (b_step) y = ((const Four<T>*)b)[i];
#pragma unroll
        for (int k = 0; k < 4; k++) z.v[k] = (c_step ? c.v[k] : one_c) ? (a_step ? x.v[k] : one_a) : (b_step ? y.v[k] : one_b);
        ((Four<T>*)out)[i] = z;
    }
    for (i64 i = 4 * fours + THREAD; i < n; i += THREADS) {
        out[i] = (c_step ? condition[i] : one_c) ? (a_step ? a[i] : one_a) : (b_step ? b[i] : one_b);
    }
}

KERNEL where_strided(const bool* condition, const T* a, const T* b, T* out, const Joint joint, i64 n) {
    FOR_EACH(i, n) {
        const Places<4> at = places<4>(joint, i);
        out[at.at[0]] = condition[at.at[1]] ? a[at.at[2]] : b[at.at[3]];
    }
}

#endif
