"""What `libspillway_preload.so` needs and shows."""
import re
import subprocess
import unittest

from case import BUILD


class Library(unittest.TestCase):
    def test_it_needs_nothing_but_the_c_library(self):
        """More would break programs that bring libraries of their own."""
        path = BUILD / "lib" / "libspillway_preload.so"
        dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        self.assertEqual(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic), ["libc.so.6"])

    def test_it_shows_hooks_and_nothing_else(self):
        path = BUILD / "lib" / "libspillway_preload.so"
        names = subprocess.run(["nm", "-D", "--defined-only", "-P", path], capture_output=True, text=True, check=True)
        others = [line.split()[0] for line in names.stdout.splitlines() if not re.match(r"cu[A-Z]", line)]
        self.assertEqual(sorted(others), [
            "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE", "dlsym", "dlvsym", "ibv_dereg_mr", "ibv_reg_mr",
            "ibv_reg_mr_iova", "ibv_reg_mr_iova2", "spillway_follow_streams", "spillway_pass_gate",
            "spillway_unhooked_dlsym"])


if __name__ == "__main__":
    unittest.main()
