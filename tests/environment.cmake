# ctest reads this first: what the processes of all tests inherit. tools/test-cases gives the same.

# A thread of OpenMP or of OpenBLAS that has nothing to do spins by default, and takes the processor from the test
# beside it.
if(NOT DEFINED ENV{OMP_WAIT_POLICY})
  set(ENV{OMP_WAIT_POLICY} passive)
endif()
if(NOT DEFINED ENV{OPENBLAS_THREAD_TIMEOUT})
  set(ENV{OPENBLAS_THREAD_TIMEOUT} 4)  # the least that it takes: 16 cycles
endif()
