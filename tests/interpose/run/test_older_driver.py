"""Programs on drivers that are older than the headers Spillway is built with."""
import sys
import unittest

import torch
from case import BUILD, Case

CUDA_12 = torch.version.cuda.startswith("12.")
FOR_CUDA_13 = unittest.skipIf(CUDA_12, "this PyTorch is for CUDA 12")
FOR_CUDA_12 = unittest.skipUnless(CUDA_12, "this PyTorch is for CUDA 13")  # that of 2.8 to 2.10: tools/torch-matrix


class OlderDriver(Case):
    program = BUILD / "bin" / "interpose_driver_api"

    def on(self, profile):
        return ("--gpu", "a100-40gb", "--profile", profile)

    def test_a_program_that_needs_no_more_is_rescued(self):
        for profile in ("driver-12.2", "driver-12.8"):
            with self.subTest(profile):
                native = self.simulate(self.program, card=self.on(profile))
                self.assertEqual((native.status, native.output), (1, "cuMemAlloc gave 2\n"))
                ended = self.run_on(self.program, card=self.on(profile))
                self.assertEqual(ended.status, 0, ended.output + ended.errors)
                self.assertRegex(ended.output, r"^\d+ MiB while the pool kept \d+\n$")
                self.assertIn("1 memory failure met, 1 rescued", ended.line)
                self.assertEqual(len(ended.errors.splitlines()), 1, ended.errors)

    @FOR_CUDA_13
    def test_a_program_of_a_newer_cuda_gets_the_drivers_error_and_one_line(self):
        program = ["-W", "ignore", "-c", "import torch; torch.ones(1, device='cuda')"]
        for mode in ("rescue", "replace"):
            with self.subTest(mode):
                ended = self.run_on(sys.executable, *program, options=["--mode", mode], card=self.on("driver-12.8"))
                self.assertEqual(ended.status, 1)
                self.assertIn("The NVIDIA driver on your system is too old (found version 12080)", ended.errors)
                said = [line for line in ended.errors.splitlines() if line.startswith("spillway: ")]
                self.assertEqual(said, ["spillway: the program's CUDA runtime is of CUDA 13 and the driver serves CUDA "
                                        "12.8: its calls fail with cudaErrorInsufficientDriver; update the driver, or "
                                        "use a build for CUDA 12"])

    def test_a_function_that_the_driver_finds_and_does_not_export_is_called(self):
        """By cuGetProcAddress alone, under the name of a version that the driver does not have."""
        driver = BUILD / "lib" / "test" / "libunexported.so"
        program = f"""
import ctypes
found, device, status = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
find = ctypes.CDLL({str(driver)!r}).cuGetProcAddress_v2
assert find(b"cuCtxGetDevice", ctypes.byref(found), 13000, ctypes.c_uint64(0), ctypes.byref(status)) == 0
function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(found.value)
print(function(ctypes.addressof(device), None), device.value)
"""
        for command in (self.simulate, self.run_on):
            ended = command(sys.executable, "-c", program, card=self.on("driver-12.8"), SPILLWAY_DRIVER=str(driver))
            self.assertEqual(ended.output, "0 42\n", ended.errors)

    def test_a_runtime_of_the_drivers_cuda_is_not_called_newer(self):
        """The simulated runtime of CUDA 12 stands on that of CUDA 13, which asks the driver's version too."""
        program = """
import ctypes
ctypes.CDLL("libcudart.so.13").cudaSpillwayServe(12080)  # as libraries with kernels of CUDA 12 make it
runtime = ctypes.CDLL("libcudart.so.12")
address = ctypes.c_void_p()
print(runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1 << 50)))
"""
        ended = self.run_on(sys.executable, "-c", program, card=self.on("driver-12.8"))
        self.assertEqual(ended.output, "2\n", ended.errors)
        self.assertIn("1 memory failure met", ended.line)

    @FOR_CUDA_12
    def test_pytorch_of_cuda_12_goes_on_beyond_its_card(self):
        program = """
import torch
held = [torch.full((256 << 20,), number, dtype=torch.uint8, device="cuda") for number in range(12)]
print([int(tensor.min()) == int(tensor.max()) == number for number, tensor in enumerate(held)].count(True))
"""
        for profile in ("driver-12.2", "driver-12.8"):
            with self.subTest(profile):
                card = ("--capacity", "2GiB", "--profile", profile)
                native = self.simulate(sys.executable, "-c", program, card=card)
                self.assertIn("torch.OutOfMemoryError", native.errors)
                ended = self.run_on(sys.executable, "-c", program, card=card,
                                    options=["--mode", "replace", "--host-budget", "4GiB", "--max-slowdown", "none"])
                self.assertEqual(ended.output, "12\n", ended.errors)
                self.assertRegex(ended.line, r"(\d+) memory failures? met, \1 rescued")
                self.assertIn("spill_to_host", next(iter(ended.reports.values())))

    @FOR_CUDA_13
    def test_the_runtime_says_so_itself(self):
        program = """
import ctypes
runtime = ctypes.CDLL("libcudart.so.13")
value = ctypes.c_int()
print(runtime.cudaGetDeviceCount(ctypes.byref(value)), runtime.cudaDriverGetVersion(ctypes.byref(value)), value.value)
"""
        ended = self.simulate(sys.executable, "-c", program, card=self.on("driver-12.8"))
        self.assertEqual(ended.output, "35 0 12080\n", ended.errors)


if __name__ == "__main__":
    unittest.main()
