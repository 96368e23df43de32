"""How the kernels are compiled: no fastmath, no parallel loops, and IEEE division, which never raises."""

from numba import njit

#: A division by zero, say of a norm that underflowed, is infinite; the kernels look at what they are about to use.
kernel = njit(cache=True, error_model="numpy")
#: For what is called once a feature or an example: a call costs as much as a feature.
inlined = njit(cache=True, error_model="numpy", forceinline=True)
