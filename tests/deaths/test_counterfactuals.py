"""What a report says would have fitted is tried: the program that died runs again with that setting, on that
capacity, or mended, on the simulated card, and gets past the request that failed. What does not fit does not."""
import concurrent.futures
import unittest

from machine import MIB, died_natively, died_under_run

CAPACITY = 256 * MIB
REPLACE = ("--mode", "replace", "--host-budget", "0")
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
DEATHS = ("fragmentation", "leak", "pools", "pending", "evaluation", "growing_cache", "one_large_batch")
MENDED = ("leak", "evaluation")


def native(death, capacity=CAPACITY, **settings):
    return died_natively(death, capacity=str(capacity), **settings)


def replaced(death, capacity=CAPACITY):
    return died_under_run(death, *REPLACE, capacity=str(capacity))


def lines_of(died):
    return {one["what"]: one for one in died.data["counterfactuals"]}


def in_use(died):
    """When the last request failed, with what was freed and still in use; nothing where none did."""
    if died.data is None:
        return None
    if "failure" in died.data:
        memory = died.data["memory"]
        return memory["in_use_bytes"] + memory["pending_bytes"] if died.data["failure"] else None
    lost = [one for one in died.data["incidents"] if one["outcome"] == "gave up"]
    return lost[-1]["equation"]["live_bytes"] + lost[-1]["equation"]["pending_bytes"] if lost else None


def gets_past(died, again):
    """No request fails now, or one when more was in use."""
    return in_use(again) is None or in_use(again) > in_use(died)


class Counterfactuals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with concurrent.futures.ThreadPoolExecutor(max_workers=3) as pool:
            cls.native = dict(zip(DEATHS, pool.map(native, DEATHS), strict=True))
            lost = [death for death in DEATHS if death != "fragmentation"]  # which Spillway mends
            cls.replaced = dict(zip(lost, pool.map(replaced, lost), strict=True))

    def each(self, died, run, work):
        with concurrent.futures.ThreadPoolExecutor(max_workers=3) as pool:
            for (death, one), again in zip(died.items(), pool.map(lambda item: run(*item), died.items()), strict=True):
                with self.subTest(death=death):
                    work(one, again)

    def judged(self, died, what, again):
        fits = lines_of(died)[what]["fits"]
        if died.cause == "pending frees":  # in a capture, of which a replay knows nothing
            self.assertIsNone(fits)
        else:
            self.assertEqual(fits, gets_past(died, again), died.text)

    def test_expandable_segments(self):
        def check(died, again):
            self.judged(died, "PyTorch's expandable segments", again)
        self.each(self.native, lambda death, _: native(death, **EXPANDABLE), check)

    def test_spillway_as_the_allocator(self):
        def check(died, again):
            self.judged(died, "Spillway as PyTorch's allocator", again)
        self.each(self.native, lambda death, _: self.replaced.get(death) or replaced(death), check)

    def more_memory(self, died, run):
        def more(one, less=0):
            line = lines_of(one)["more memory, with the allocator that was used"]
            self.assertEqual(line["needed_bytes"], CAPACITY + line["bytes"], "what the card must have in all")
            return line["needed_bytes"] - less

        def check(one, again):
            self.assertTrue(gets_past(one, again[0]), one.text)
            self.assertFalse(gets_past(one, again[1]), one.text)
        self.each(died, lambda death, one: (run(death, more(one)), run(death, more(one, 2 * MIB))), check)

    def test_more_memory_and_a_page_less_natively(self):
        self.more_memory(self.native, native)

    def test_more_memory_and_a_page_less_on_spillway(self):
        self.more_memory(self.replaced, replaced)

    def test_freeing_what_grows(self):
        for death in MENDED:
            for died, run in ((self.native[death], native), (self.replaced[death], replaced)):
                with self.subTest(death=death, source=run.__name__):
                    self.assertIs(lines_of(died)["freeing what each step leaves behind"]["fits"], True)
                    self.assertIsNone(in_use(run(f"{death} --mended")))


if __name__ == "__main__":
    unittest.main()
