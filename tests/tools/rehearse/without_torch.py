"""Uses a card without PyTorch: it reads 16 bytes back."""
import ctypes

runtime = ctypes.CDLL("libcudart.so.13")
memory, host = ctypes.c_void_p(), (ctypes.c_char * 16)()
assert runtime.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(1 << 20)) == 0
assert runtime.cudaMemcpy(host, memory, ctypes.c_size_t(16), 2) == 0
