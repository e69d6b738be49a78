"""The nodes that some values were made from, in topological order."""

from cpython.object cimport PyObject

from needle.autograd.values cimport Value

ctypedef unsigned int number_t          # of a node, in the order in which they were found

cdef enum:
    FEW = 16                            # nodes that fit without asking for memory
    NO_NODE = 0x7FFFFFFF                # also the limit of nodes and edges

cdef struct Node:
    PyObject* value                     # held by `values`
    number_t first                      # edges[first] is its first input; they end where those of the next number begin
    number_t next                       # the next of them to look at
    number_t parent                     # the node that it was found from
    number_t order                      # of the entry at place i, not of node i: the number of the node that comes i-th


cdef class Graph:
    cdef list values                    # the nodes by number: they live as long as this, whatever happens to the graph
    cdef Py_ssize_t count
    cdef Node* nodes                    # by number, and one behind the last
    cdef number_t* edges                # numbers of the inputs of all nodes; NO_NODE: not part of this graph
    cdef number_t* table                # a hash table, at most half full: the number of a node + 1; 0: free
    cdef Py_ssize_t nodes_size, edges_size, mask
    cdef Node few_nodes[FEW + 1]
    cdef number_t few_edges[2 * FEW]
    cdef number_t few_table[4 * FEW]

    cdef int explore(self, list roots, bint recorded_only) except -1
    cdef Py_ssize_t find(self, PyObject* value) noexcept
    cdef Py_ssize_t add(self, Value value, Py_ssize_t parent) except -1
    cdef int grow(self, Py_ssize_t edges) except -1


cdef list sorted_nodes(list roots)
