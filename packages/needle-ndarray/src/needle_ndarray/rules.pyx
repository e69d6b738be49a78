# cython: nonecheck=False, boundscheck=False
# What is looked into is an NDArray by then (misfit), and the loops run over the arrays of a rule.
"""Rules: what shapes and dtypes the verbs of the backend interface take, each once, as a line of text in `rule_table`.

The functions of NDArrays ask it before they call a verb, the CPU backend when it is called (its verbs can be called from Python),
the contract suite makes its wrong calls from it, and docs/extend/backend.md shows it.

>>> from needle_ndarray import ones
>>> RULES["layer_norm"]
<Rule layer_norm: x: to float (..., n>0); weight?, bias?: (n) -> out: (..., n)>
>>> x, weight, bias, out = RULES["layer_norm"].prepare(ones((2, 4)), None, ones(4))
>>> out.shape
(2, 4)
>>> RULES["layer_norm"].prepare(ones((2, 4)), ones(3), None)
Traceback (most recent call last):
    ...
ValueError: layer_norm: weight has shape (3,), expected (4,) as x is (2, 4)
"""

from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.math cimport INFINITY

import math
import re

from needle_ndarray.backend cimport Backend
from needle_ndarray.buffer cimport Buffer
from needle_ndarray.kernels.views cimport View
from needle_ndarray.layout cimport as_tuple, check_writable, checked_size, same_shape
from needle_ndarray.ndarray cimport MAX_NDIM, NDArray, empty_compact, to_dtype
from needle_ndarray.optable cimport BOOL, FLOAT16, FLOAT32, FLOAT64, INT64, UINT8

from needle_ndarray.dtypes import DTYPES, promote_types, result_type
from needle_ndarray.rule_table import TABLE

cdef extern from "Python.h":
    void* Py_TYPE(void*) noexcept
    void* PyList_GET_ITEM(void*, Py_ssize_t) noexcept
    void* PyTuple_GET_ITEM(void*, Py_ssize_t) noexcept

cdef enum Kind:                         # of dtype, beyond the codes of one
    LIKE = 100                          # that of the arrays before
    ANY, FLOAT, SUMMED, STORED, OTHER, MASK

cdef enum Misfit:
    NO_ARRAY = 1, WRONG_SHAPE, WRONG_DEVICE, WRONG_DTYPE

cdef dict KINDS = {"": LIKE, "any": ANY, "stored": STORED, "other": OTHER,
                   "float": FLOAT, "summed": SUMMED, "mask": MASK, "bool": BOOL, "int64": INT64}
cdef dict EXPECTED = {FLOAT: "float32 or float64", ANY: "float32 or another that is computed with", BOOL: "bool", INT64: "int64",
                      SUMMED: "int64, float32 or float64"}
cdef object AXIS = re.compile(r"(\d*)([A-Za-z]+)(?:\+(\d+))?(?:>(\d+))?").fullmatch
cdef object ARRAYS = re.compile(r"\s*([^:]*): *(to )?(\w*) *\(([^)]*)\)\s*").fullmatch
cdef Py_ssize_t TOO_MANY = 0x100000000000   # elements: only a broadcast view has as many, and the size of a row could overflow


cdef class Rule:
    """What shapes and dtypes one function, and its verb, take: a line of the table."""

    def __repr__(self):
        return f"<Rule {self.name}: {self.text}>"

    def prepare(self, *given):
        """The inputs, cast where the rule says so, and new results after them, uninitialised; an error says what does not fit.

        What only begins a result is checked, and not among what is returned.
        """
        cdef Sizes sizes
        cdef Spec* spec = self.specs
        cdef void* backend = NULL
        cdef int i
        start(&sizes, self.known)
        if len(given) != self.inputs:
            raise TypeError(f"{self.name}: {len(given)} arrays were given, the rule has {self.inputs}: {self.text}")
        cdef tuple arrays = PyTuple_New(self.count)
        for i in range(self.inputs):
            a = given[i]
            if spec.cast:
                a = cast_of(spec, a)
            elif spec.dtype < STORED and isinstance(a, NDArray) and (<NDArray> a)._dtype >= FLOAT16:
                a = to_dtype(<NDArray> a, FLOAT32)
            Py_INCREF(a)
            PyTuple_SET_ITEM(arrays, i, a)
            if misfit(spec, <Borrowed> a, backend, &sizes):
                raise self.refusal(i, a, arrays[:i])
            if backend is NULL:
                backend = <void*> (<NDArray> a)._backend
            spec += 1
        for i in range(self.inputs, self.count):
            a = result_of(spec, backend, &sizes)
            Py_INCREF(a)
            PyTuple_SET_ITEM(arrays, i, a)
            spec += 1
        return tuple([arrays[i] for i in range(self.count) if not self.specs[i].begins]) if self.begins else arrays

    def arrays(self, dict sizes, tuple rest=()):
        """The arrays of the verb, for sizes of the symbols and of `...`: what tests make calls from.

        Returns
        -------
        list of (name, label, dtype, shape, axes, marks): `axes` names the symbol of each axis, `marks` are "cast", "optional",
        "begins" and "result"

        >>> RULES["layer_norm"].arrays({"n": 4}, (2,))[1]
        ('weight', 'weight', '', (4,), ('n',), ('optional',))
        """
        cdef Spec* spec
        cdef int i, j
        made, words = [], {kind: word for word, kind in KINDS.items()}
        for i in range(self.count):
            spec = &self.specs[i]
            axes = [self.symbols[spec.axes[j].symbol] for j in range(spec.count)]
            shape = [spec.axes[j].times * sizes.get(axis, 0) + spec.axes[j].plus for j, axis in enumerate(axes)]
            if spec.rest:
                shape[spec.before:spec.before], axes[spec.before:spec.before] = rest, ["..."] * len(rest)
            marks = [word for word, marked in (("cast", spec.cast), ("optional", spec.optional), ("begins", spec.begins),
                                               ("result", i >= self.inputs)) if marked]
            made.append((self.names[i], self.labels[i], words[spec.dtype], tuple(shape), tuple(axes), tuple(marks)))
        return made

    def inputs_of(self, *given):
        """The inputs at their common float dtype (ints become float64, uint8 and bool float32); an error says what does not fit."""
        if self.fits(*given):
            return given
        cdef Sizes sizes
        cdef int i
        arrays = list(given)
        if len(arrays) == self.inputs and all([isinstance(a, NDArray) for a in arrays]):
            dtype = promote_types(result_type(*[a.dtype for a in arrays]), DTYPES[<int> FLOAT32])
            arrays = [a.astype(dtype, copy=False) for a in arrays]
        start(&sizes, self.known)
        for i in range(self.inputs):
            if misfit(&self.specs[i], <Borrowed> arrays[i], <void*> (<NDArray> arrays[0])._backend if i else NULL, &sizes):
                raise self.refusal(i, arrays[i], tuple(arrays[:i]))
        return arrays

    def fits(self, *given):
        """Whether the inputs are as the verb wants them, on one device."""
        cdef Sizes sizes
        cdef void* backend = NULL
        cdef int i
        if len(given) != self.inputs:
            return False
        start(&sizes, self.known)
        for i in range(self.inputs):
            if misfit(&self.specs[i], PyTuple_GET_ITEM(<Borrowed> given, i), backend, &sizes):
                return False
            if backend is NULL:
                backend = <void*> (<NDArray> given[i])._backend
        return True

    cdef int guard(self, Borrowed* given, View* views) except -1:
        """Check the arrays of a verb, in the order of the text, and describe them to a kernel: all are on the host"""
        cdef Sizes sizes
        cdef Spec* spec = self.specs
        cdef Borrowed* next = given
        cdef int i
        start(&sizes, self.known)
        for i in range(self.count):
            if not spec.begins:
                if (spec.like < 0 or not alike(next[0], given[spec.like])) and misfit(spec, next[0], NULL, &sizes):
                    raise self.refusal(i, <object> next[0], self.before(i, given))
                if next[0] is not <Borrowed> None:
                    if (<NDArray> next[0])._ptr is NULL or (<NDArray> next[0])._size > TOO_MANY:
                        self.check_memory(i, <NDArray> next[0])
                    (<NDArray> next[0]).view_into(views)
                next, views = next + 1, views + 1
            spec += 1
        return 0

    def check_lists(self, *lists):
        """Check an array of each list, entry after entry: all on one device. A list that may be None may be left out."""
        self.walk(lists, False)

    cdef int walk(self, tuple lists, bint for_kernel) except -1:
        """`check_lists`, and whether a kernel on the host can read and write the memory"""
        cdef Sizes sizes
        cdef Spec* spec
        cdef Py_ssize_t i
        cdef int k, count = len(lists)
        cdef void* backend = NULL
        cdef Borrowed a, first = NULL
        if len(lists) > self.count or len(lists) < self.count and not self.specs[len(lists)].optional:
            raise TypeError(f"{self.name}: {len(lists)} lists were given, the rule has {self.count}: {self.text}")
        for k in range(len(lists)):
            if type(lists[k]) is not list:
                raise TypeError(f"{self.name}: expected lists of NDArrays, got {type(lists[k]).__name__}")
            if len(<list> lists[k]) != len(<list> lists[0]):
                raise ValueError(f"{self.name}: {len(lists[0])} {self.labels[0]}s, but {len(lists[k])} {self.labels[k]}s")
        for i in range(len(<list> lists[0])):
            start(&sizes, self.known)
            for k in range(count):
                spec = &self.specs[k]
                a = PyList_GET_ITEM(PyTuple_GET_ITEM(<Borrowed> lists, k), i)
                if a is <Borrowed> None:        # a list may be left out, an entry may not
                    raise TypeError(f"{self.name}: {self.labels[k]} {i}: expected an NDArray, got NoneType")
                if not (k and spec.like == 0 and alike(a, first) and <void*> (<NDArray> a)._backend is backend) \
                        and misfit(spec, a, backend, &sizes):
                    before = tuple([other[i] for other in lists[:k]])
                    raise self.refusal(k, <object> a, before, f" {i}", lists[0][0] if i else None)
                if for_kernel and ((<NDArray> a)._ptr is NULL or (<NDArray> a)._size > TOO_MANY):
                    self.check_memory(k, <NDArray> a)
                if spec.in_place and not (<NDArray> a)._compact:
                    check_writable(f"{self.name}: {self.labels[k]} {i}", <NDArray> a)
                if k == 0:
                    first = a
                    if backend is NULL:
                        backend = <void*> (<NDArray> a)._backend
        return 0

    cdef int check_memory(self, int i, NDArray a) except -1:
        if a._ptr is NULL and (a._size or not isinstance(a._buffer, Buffer)):
            raise TypeError(f"{self.name}: {self.labels[i]}: the cpu backend was given an array on {a.device}")
        if a._size > TOO_MANY and not self.large:
            raise MemoryError(f"{self.name}: {self.labels[i]} has {a._size} elements")
        return 0

    cdef tuple before(self, int i, Borrowed* given):
        """The arrays of a verb up to the i-th, with None where the verb has none"""
        cdef int j, at = 0
        arrays = []
        for j in range(i):
            arrays.append(None if self.specs[j].begins else <object> given[at])
            at += not self.specs[j].begins
        return tuple(arrays)

    cdef object refusal(self, int i, object given, tuple before, str number="", NDArray first=None):
        """The error for an array that does not fit those before it; `number` is its place in a list, `first` has the device"""
        cdef Sizes sizes
        cdef NDArray a
        cdef int j, dtype = self.specs[i].dtype
        what = f"{self.name}: {self.labels[i]}{number}"
        start(&sizes, self.known)
        for j in range(i):
            misfit(&self.specs[j], <Borrowed> before[j], NULL, &sizes)
            first = before[j] if first is None else first
        known = sizes
        reason = misfit(&self.specs[i], <Borrowed> given, NULL if first is None else <void*> first._backend, &known)
        if reason == NO_ARRAY:
            return TypeError(f"{what}: expected an NDArray, got {type(given).__name__}")
        a = <NDArray> given
        if reason == WRONG_SHAPE:
            return ValueError(f"{what} has shape {a.shape}, expected {self.shape_of(i, &sizes)}{self.reason(i, before, number)}")
        if reason == WRONG_DEVICE:
            other = f"{self.labels[0]}{' 0' if number else ''}"
            return ValueError(f"{what} is on {a.device}, {other} on {first.device}; move it with .to(device)")
        wanted = EXPECTED.get(dtype) if sizes.dtype < 0 or dtype < LIKE else DTYPES[sizes.dtype]
        if self.specs[i].cast and dtype == INT64:
            wanted = "integers"
        return TypeError(f"{what} is {a.dtype}, expected {'bool or ' if dtype == MASK else ''}{wanted}")

    cdef str shape_of(self, int i, const Sizes* sizes):
        """The shape that is expected: numbers where they are known, else the symbols"""
        cdef const Spec* spec = &self.specs[i]
        cdef Py_ssize_t size
        cdef int at
        parts, least = [], []
        for at in range(spec.count):
            size = expected(&spec.axes[at], sizes)
            parts.append(str(size) if size >= 0 else symbol_text(&spec.axes[at], self.symbols))
            if spec.axes[at].least and size < 0:
                least.append(f", {self.symbols[spec.axes[at].symbol]} > {spec.axes[at].least - 1}")
        if spec.rest:
            parts[spec.before:spec.before] = map(str, as_tuple(sizes.rest_count, sizes.rest)) if sizes.rest_count >= 0 else ["..."]
        return f"({', '.join(parts)}{',' if len(parts) == 1 and parts[0] != '...' else ''}){''.join(least)}"

    cdef str reason(self, int i, tuple before, str number):
        """Which arrays before it say so, with their shapes"""
        cdef int j
        told, asked = [], symbols_of(&self.specs[i])
        for j in range(i):
            own = symbols_of(&self.specs[j])
            if own & asked and before[j] is not None:
                told.append(f"{self.labels[j]}{number} is {(<NDArray> before[j]).shape}")
                asked -= own
        return f" as {' and '.join(told)}" if told else ""


# ---- One array --------------------------------------------------------------------------

cdef inline void start(Sizes* sizes, int symbols) noexcept:
    cdef int i
    sizes.rest_count = sizes.dtype = -1
    sizes.at[0] = 0
    for i in range(1, symbols):
        sizes.at[i] = -1


cdef inline int misfit(const Spec* spec, Borrowed given, const void* backend, Sizes* sizes) noexcept:
    """Why an array does not fit what is known, or 0; what it tells of the symbols is then known too. NULL: any backend"""
    cdef int dtype
    if not isinstance(<object> given, NDArray):
        return 0 if given is <Borrowed> None and spec.optional else NO_ARRAY
    dtype = (<NDArray> given)._dtype
    if spec.dtype != LIKE and (spec.dtype < LIKE and dtype != spec.dtype
                               or spec.dtype == MASK and dtype != BOOL and dtype != sizes.dtype):
        return WRONG_DTYPE
    if not fits_axes(spec, (<NDArray> given)._ndim, (<NDArray> given)._shape, sizes):
        return WRONG_SHAPE
    if backend is not NULL and <void*> (<NDArray> given)._backend is not backend:
        return WRONG_DEVICE
    if dtype == sizes.dtype or spec.dtype < LIKE or spec.dtype > STORED:
        return 0
    if sizes.dtype >= 0 or spec.dtype == FLOAT and dtype < FLOAT32 or spec.dtype == SUMMED and dtype < INT64 \
            or dtype >= FLOAT16 and spec.dtype != STORED:
        return WRONG_DTYPE
    sizes.dtype = dtype
    return 0


cdef inline bint alike(Borrowed a, Borrowed b) noexcept:
    """Whether both are arrays of one shape and dtype"""
    return Py_TYPE(a) is Py_TYPE(b) and (<NDArray> a)._dtype == (<NDArray> b)._dtype and same_shape(<NDArray> a, <NDArray> b)


cdef object cast_of(const Spec* spec, object given):
    """The array, of integers cast where functions take them"""
    cdef NDArray a
    if not isinstance(given, NDArray):
        return given
    a = <NDArray> given
    if spec.dtype == INT64:
        return a if a._dtype == BOOL or a._dtype >= INT64 else to_dtype(a, INT64)
    if FLOAT32 <= a._dtype <= FLOAT64:
        return a
    return to_dtype(a, FLOAT32 if a._dtype <= UINT8 or a._dtype >= FLOAT16 else FLOAT64)


cdef NDArray result_of(const Spec* spec, void* backend, const Sizes* sizes):
    """A result, uninitialised"""
    cdef Py_ssize_t shape[MAX_NDIM + MOST_AXES]
    cdef int i, j, ndim = 0
    for i in range(spec.count + 1):
        if i == spec.before and spec.rest:
            for j in range(sizes.rest_count):
                shape[ndim] = sizes.rest[j]
                ndim += 1
        if i < spec.count:
            shape[ndim] = expected(&spec.axes[i], sizes)
            ndim += 1
    checked_size(ndim, shape)
    return empty_compact(<Backend> backend, sizes.dtype, ndim, shape)


# ---- Axes --------------------------------------------------------------------------

cdef inline bint fits_axes(const Spec* spec, int ndim, const Py_ssize_t* shape, Sizes* sizes) noexcept:
    """Whether an array has these axes, as far as their sizes are known; sizes that were not known are learnt"""
    cdef int i, rest = ndim - spec.count
    if not spec.rest:
        if rest and (rest != 1 or not spec.may_lead or shape[0] != 1):
            return False
        return fits_sizes(spec.axes, spec.count, shape + rest, sizes)
    if rest < 0:
        return False
    if sizes.rest_count < 0:
        sizes.rest, sizes.rest_count = shape + spec.before, rest
    elif rest != sizes.rest_count:
        return False
    else:
        for i in range(rest):
            if shape[spec.before + i] != sizes.rest[i]:
                return False
    return fits_sizes(spec.axes, spec.before, shape, sizes) \
        and fits_sizes(spec.axes + spec.before, spec.count - spec.before, shape + spec.before + rest, sizes)


cdef inline bint fits_sizes(const Axis* axis, int count, const Py_ssize_t* shape, Sizes* sizes) noexcept:
    cdef Py_ssize_t size
    cdef int i
    for i in range(count):
        size = sizes.at[axis[i].symbol]
        if size >= 0:
            if shape[i] != size * axis[i].times + axis[i].plus:
                return False
        else:
            size = shape[i] - axis[i].plus
            if size < axis[i].least or axis[i].times > 1 and size % axis[i].times:
                return False
            sizes.at[axis[i].symbol] = size // axis[i].times if axis[i].times > 1 else size
    return True


cdef inline Py_ssize_t expected(const Axis* axis, const Sizes* sizes) noexcept:
    """The size of an axis, -1 where it is not known"""
    return axis.times * sizes.at[axis.symbol] + axis.plus if sizes.at[axis.symbol] >= 0 else -1


cdef str symbol_text(const Axis* axis, tuple symbols):
    return f"{axis.times if axis.times > 1 else ''}{symbols[axis.symbol]}{f'+{axis.plus}' if axis.plus else ''}"


cdef set symbols_of(const Spec* spec):
    found = {spec.axes[i].symbol for i in range(spec.count)} - {0}
    return found | {MOST_SYMBOLS} if spec.rest else found


# ---- Numbers --------------------------------------------------------------------------

cpdef double number(str what, str name, object value, double least=-INFINITY) except? -1:
    """A float from `least` on, out of what users give for one."""
    if type(value) is float and least <= <double> value < INFINITY and <double> value > -INFINITY:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < least:
        raise ValueError(f"{what}: {name} = {value!r}: expected a number{f' from {least:g} on' if least > -INFINITY else ''}")
    return float(value)


# ---- The table --------------------------------------------------------------------------

cdef Rule read_rule(str verb, str name, str text):
    cdef Rule rule = Rule()
    cdef Spec* spec
    names, labels, symbols, shapes = [], [], [""], []
    for part in text.split("->"):
        for line in part.split(";"):
            words, cast, dtype, axes = ARRAYS(line).groups()
            for word in words.split(","):
                _, _, shown = word.strip().rpartition("begin ")
                parameter, _, label = shown.replace("?", "").replace("!", "").partition("/")
                spec = &rule.specs[len(names)]
                read_axes(spec, axes, symbols)
                spec.dtype, spec.cast, spec.optional, spec.begins = KINDS[dtype], bool(cast), "?" in word, "begin " in word
                same = re.sub(">\\d+", "", axes) if dtype in ("", "any", "stored", "float", "summed") else None
                spec.like = shapes.index(same) if same is not None and same in shapes else -1
                if not spec.begins:
                    shapes.append(None if spec.optional else same)
                spec.in_place, rule.begins = "!" in word, rule.begins or spec.begins
                names.append(parameter)
                labels.append(label or parameter)
        rule.inputs = rule.inputs or len(names)
    rule.verb, rule.name, rule.text = verb, name, " ".join(text.split())
    rule.count, rule.names, rule.labels = len(names), tuple(names), tuple(labels)
    rule.symbols, rule.known, rule.large = tuple(symbols), len(symbols), not {"any", "stored", "summed"}.isdisjoint(text.split())
    return rule


cdef int read_axes(Spec* spec, str text, list symbols) except -1:
    cdef Axis* axis
    for word in text.replace(" ", "").split(","):
        if word == "...":
            spec.rest, spec.before = True, spec.count
        elif word == "1?":
            spec.may_lead = True
        elif word == "1":
            spec.axes[spec.count].symbol, spec.axes[spec.count].plus = 0, 1
            spec.count += 1
        elif word:
            times, symbol, plus, least = AXIS(word).groups()
            if symbol not in symbols:
                symbols.append(symbol)
            axis = &spec.axes[spec.count]
            axis.symbol, axis.times, axis.plus = symbols.index(symbol), int(times or 1), int(plus or 0)
            axis.least = int(least) + 1 if least else 0
            spec.count += 1
    return 0


cdef dict read_table(str text):
    """{name: rule}; a line that begins with blanks only goes on with the one before it"""
    cdef dict made = {}
    for line in re.sub(r"\n {20,}", " ", text).strip().splitlines():
        if line.strip():
            names, _, rest = line.strip().partition(" ")
            verb, _, ops = names.partition(".")
            for name in (ops or verb).split("|"):
                made[name] = read_rule(verb, name, rest)
    return made


#: Every rule by its name.
RULES = read_table(TABLE)
