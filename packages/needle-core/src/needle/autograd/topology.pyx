# cython: boundscheck=False, nonecheck=False
"""Topological order, depth first. All marks are in tables of the walk's own: two walks over the same nodes do not see each other.

The hash table keeps nodes that were made one after the other side by side, so that looking them up stays in the cache. Backward
then takes what it took with marks in the nodes (240 ns a node of a chain of 200,000); a hash that scatters them adds 50 ns.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from needle.autograd.values cimport Value, entry


@cython.auto_pickle(False)
cdef class Graph:
    """What some roots were made from. A node has a number: the place at which it was found."""

    def __cinit__(self):
        self.nodes, self.nodes_size = self.few_nodes, FEW + 1
        self.edges, self.edges_size = self.few_edges, 2 * FEW
        self.table, self.mask = self.few_table, 4 * FEW - 1

    def __dealloc__(self):
        free_unless(self.nodes, self.few_nodes)
        free_unless(self.edges, self.few_edges)
        free_unless(self.table, self.few_table)

    @cython.final
    cdef int explore(self, list roots, bint recorded_only) except -1:
        """Find all nodes and their order: post-order depth first over `inputs`, in order."""
        cdef Py_ssize_t here, found, finished = 0
        cdef Node* node
        cdef PyObject* child
        self.values = []
        for root in roots:
            if root is None:
                raise TypeError("expected a Value, got None")
            here = NO_NODE if self.find(<PyObject*> (<Value?> root)) >= 0 else self.add(<Value> root, NO_NODE)
            while here != NO_NODE:
                node = self.nodes + here
                if node.next == self.nodes[here + 1].first:
                    self.nodes[finished].order = here
                    finished += 1
                    here = node.parent
                    continue
                child = entry((<Value> node.value).inputs, node.next - node.first)
                found = self.find(child)
                if found < 0 and recorded_only and not (<Value> child).wants_grad:
                    found = NO_NODE
                elif found < 0:
                    found = self.add(<Value> child, here)
                    node = self.nodes + here            # they may have moved
                    here = found
                self.edges[node.next] = found
                node.next += 1
        return 0

    @cython.final
    cdef inline Py_ssize_t find(self, PyObject* value) noexcept:
        """The number of a node; if it has none yet, -1 - the free place in the table"""
        cdef uintptr_t address = <uintptr_t> value
        cdef Py_ssize_t i = <Py_ssize_t> ((address >> 5) + (address >> 14) * <uintptr_t> 0x9E3779B1U) & self.mask
        while self.table[i] != 0:
            if self.nodes[self.table[i] - 1].value is value:
                return self.table[i] - 1
            i = (i + 1) & self.mask
        return -1 - i

    @cython.final
    cdef Py_ssize_t add(self, Value value, Py_ssize_t parent) except -1:
        """Give a node the next number, and memory for its edges."""
        cdef Py_ssize_t number = self.count, first = self.nodes[number].first
        cdef Py_ssize_t edges = first + PyTuple_GET_SIZE(value.inputs)
        if number + 2 > self.nodes_size or edges > self.edges_size or 2 * number > self.mask:
            self.grow(edges)
        self.values.append(value)
        self.nodes[number].value = <PyObject*> value
        self.nodes[number].next, self.nodes[number].parent = first, parent
        self.nodes[number + 1].first = edges
        self.table[-1 - self.find(<PyObject*> value)] = number + 1
        self.count += 1
        return number

    cdef int grow(self, Py_ssize_t edges) except -1:
        """Twice the nodes, edges, and places in the table that there are, where they are used up."""
        cdef Py_ssize_t i
        cdef number_t* table
        if edges >= NO_NODE:
            raise MemoryError(f"a graph of {self.count} nodes and {edges} edges")
        if self.count + 2 > self.nodes_size:
            self.nodes = <Node*> grown(self.nodes, self.few_nodes, self.nodes_size * sizeof(Node))
            self.nodes_size *= 2
        while edges > self.edges_size:
            self.edges = <number_t*> grown(self.edges, self.few_edges, self.edges_size * sizeof(number_t))
            self.edges_size *= 2
        if 2 * self.count > self.mask:
            table = <number_t*> calloc(2 * (self.mask + 1), sizeof(number_t))
            if table is NULL:
                raise MemoryError("no memory for the topological sort")
            free_unless(self.table, self.few_table)
            self.table, self.mask = table, 2 * self.mask + 1
            for i in range(self.count):
                self.table[-1 - self.find(self.nodes[i].value)] = i + 1
        return 0


cdef void* grown(void* block, void* first, size_t size) except NULL:
    """Twice the memory, with what is in it; `first` is part of an object"""
    cdef void* made = malloc(2 * size) if block is first else realloc(block, 2 * size)
    if made is NULL:
        raise MemoryError("no memory for the topological sort")
    if block is first:
        memcpy(made, first, size)
    return made


cdef void free_unless(void* block, void* first) noexcept:
    if block is not first:
        free(block)


cdef list sorted_nodes(list roots):
    """The nodes that roots were made from, and roots, every node after what it was made from"""
    cdef Graph graph = Graph.__new__(Graph)
    cdef Py_ssize_t i
    graph.explore(roots, False)
    return [graph.values[graph.nodes[i].order] for i in range(graph.count)]
