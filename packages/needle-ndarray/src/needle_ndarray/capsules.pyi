"""Types of the compiled module."""

NBYTES: object
DTYPE_CODE: object
VERSION: object
SOLE_OWNER: object
