#!/usr/bin/env python3
"""Opens pages of `spillway report --html` in a headless Chromium: in_browser.py [Page.test_NAME].

SPILLWAY_BUILD_DIR names the build folder. Exit code 77, which ctest takes for "skipped", where there is no Chromium:
tools/setup --oldest installs it.
"""
import json
import os
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
from browser import Browser, program  # noqa: E402
from samples import Samples  # noqa: E402

SPILLWAY = pathlib.Path(os.environ.get("SPILLWAY_BUILD_DIR", "build")).resolve() / "bin/spillway"
GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden/snapshot.pickle"
VIEWS = ["verdict", "memory", "time", "map", "flame", "holders", "events", "notes"]
CONTRASTS = [("ink", "panel"), ("muted", "panel"), ("muted", "page"), ("muted", "chart"), ("bad", "bad-soft"),
             ("bad", "chart"), ("good", "good-soft"), ("panel", "accent"), ("ink", "soft"), ("panel", "ink"),
             *(("ink", f"f{i}") for i in range(6))]


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.samples = Samples(SPILLWAY, GOLDEN, cls.folder.name)
        cls.page = cls.samples.page_of(GOLDEN)
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.folder.cleanup()

    def setUp(self):
        self.browser.resize(1280, 900)
        self.browser.dark(False)

    def open(self, path):
        self.browser.errors.clear()
        self.browser.requests.clear()
        self.browser.open(path)

    def text(self, selector):
        return self.browser.value(f"document.querySelector({json.dumps(selector)}).innerText")

    def test_a_snapshot_is_explained_without_an_error_or_a_network(self):
        self.open(self.page)
        self.assertEqual(self.browser.errors, [])
        self.assertEqual(self.browser.requests, [self.page.as_uri()])
        self.assertIn("20.00 MiB in 9 blocks of train.py:11 step were kept: 2.00 MiB more after each step.",
                      self.text("#verdict"))
        for view in VIEWS:
            self.assertTrue(self.text(f"#{view} h1, #{view} h2"), view)
        self.assertIn("30\u202f411\u202f784 B", self.text("#memory"))
        self.assertIn("+2.00 MiB", self.text("#holders"))
        self.assertIn("backward pass", self.text("#holders .scroll:last-child"))
        self.assertIn("step", self.text("#flame"))

    def test_a_log_shows_what_it_has(self):
        self.open(self.samples.page_of(GOLDEN.with_name("rmm.dev1.csv"), "log"))
        self.assertEqual(self.browser.errors, [])
        self.assertIn("+3.00 MiB", self.text("#holders"))
        self.assertIn("in use", self.text("#memory"))
        self.assertNotIn("null", self.text("#memory"))
        self.assertIn("does not tell in which segments", self.text("main"))

    def test_names_of_a_hostile_file_run_nothing(self):
        self.open(self.samples.hostile())
        self.browser.click(*self.middle_of(".plot", 0.95, 0.99))
        self.assertEqual(self.browser.value("[typeof window.hit, document.images.length, document.scripts.length]"),
                         ["undefined", 0, 2])
        self.assertEqual(self.browser.errors, [])
        for view in ("#holders", "#flame", "#notes"):
            self.assertIn("<script>window.hit = 1</script>", self.text(view))

    def test_lines_of_a_hostile_source_run_nothing(self):
        self.open(self.samples.hostile_source())
        self.assertEqual(self.browser.value("[typeof window.hit, document.images.length, document.scripts.length]"),
                         ["undefined", 0, 2])
        self.assertEqual(self.browser.errors, [])
        self.assertIn("x = 1 # </script><script>window.hit = 1</script>", self.text("#lines"))

    def test_the_policy_stops_a_script_that_is_not_the_pages(self):
        self.open(self.page)
        self.browser.value("(() => { const s = document.createElement('script'); s.textContent = 'window.hit = 3';"
                           "document.body.append(s); document.body.append(new Image());"
                           "document.images[0].src = 'http://[::1]/x';"
                           "return fetch('http://[::1]/x').catch(() => 0); })()")
        self.assertEqual(self.browser.value("typeof window.hit"), "undefined")
        stopped = [error for error in self.browser.errors if "Content Security Policy" in error]
        self.assertGreaterEqual(len(stopped), 2, self.browser.errors)

    def middle_of(self, selector, across=0.5, down=0.5):
        left, top, width, height = self.browser.box(selector)
        return left + width * across, top + height * down

    def colours_of(self, selector):
        return self.browser.value(f"(() => {{ const c = document.querySelector({json.dumps(selector)});"
                                  "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
                                  "return new Set(new Uint32Array(d.buffer)).size; })()")

    def test_the_charts_are_drawn(self):
        self.open(self.page)
        self.assertGreater(self.colours_of(".plot"), 4)
        self.assertGreater(self.colours_of(".map canvas"), 4)
        self.assertGreater(self.browser.value("document.querySelectorAll('.flame button').length"), 5)

    def test_keys_choose_a_moment_and_a_block(self):
        self.open(self.page)
        moment = "Number(document.querySelector('.plot').getAttribute('aria-valuenow'))"
        self.browser.value("document.querySelector('.plot').focus()")
        self.browser.key("f")
        self.browser.key("ArrowLeft")
        self.assertEqual(self.browser.value(moment), 638)  # the failure is at 641, a step a 200th of 647
        self.browser.key("p")
        self.assertEqual(self.browser.value(moment),
                         self.browser.value("JSON.parse(document.getElementById('data').textContent).history.peak"))
        self.browser.key("ArrowUp")
        self.assertIn("Block of", self.text("#time .card"))
        self.assertIn("address", self.text("#map .card"))
        self.assertTrue(self.browser.value("document.querySelectorAll('#time .frames li').length > 0 || "
                                           "document.querySelector('#time .card').innerText.includes('No stack')"))

    def test_the_wheel_zooms(self):
        self.open(self.page)
        x, y = self.middle_of(".plot")
        before = self.picture_of(".plot")
        self.browser.mouse("mouseWheel", x, y, deltaX=0, deltaY=-600)
        self.browser.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.assertNotEqual(before, self.picture_of(".plot"))

    def picture_of(self, selector):
        return self.browser.value(f"document.querySelector({json.dumps(selector)}).toDataURL()")

    def test_a_filter_finds_places(self):
        self.open(self.page)
        self.browser.value("(() => { const i = document.querySelector('input[type=search]'); i.value = 'STEP :11';"
                           "i.dispatchEvent(new Event('input')); })()")
        self.assertEqual(self.browser.value("document.querySelectorAll('#holders .holders tbody tr').length"), 1)
        self.assertIn("1\u00a0place, 20.00 MiB, 69%", self.text("#holders"))

    def test_a_trace_tells_the_ladders_story_and_hides_what_it_does_not_hold(self):
        self.open(self.samples.trace(self.page))
        self.assertEqual(self.browser.errors, [])
        self.assertIn("RESCUED", self.text("#verdict h1"))
        for words in ("Incident 2", "spill_to_host", "stitch: a <capture>", "1\u00a0other incident"):
            self.assertIn(words, self.text("#ladder"))
        for view in ("time", "map", "flame", "holders"):
            self.assertTrue(self.browser.value(f"document.getElementById('{view}') === null"), view)
        self.assertIn("This trace holds no history of its allocations.", self.text("main"))
        self.assertIn("a card of 2 GiB", self.text("#fitted"))
        for words in ("The lines below add up to it.", "What this request may not use", "pool 3", "<b>capture</b>",
                      "Pending: 16.00 MiB in 2\u00a0blocks, for work of stream 0xab."):
            self.assertIn(words, self.text("#memory"))
        self.assertIn("12 ms to 3 ms", self.text("#events"))
        self.assertIn("freed 48 blocks, 1.00 GiB", self.text("#events"))
        self.assertIn("1\u00a0event came after it", self.text("#events"))

    def test_a_trace_with_a_history_shows_every_view(self):
        self.open(self.samples.trace(self.page, with_history=True))
        self.assertEqual(self.browser.errors, [])
        for view in [*VIEWS, "ladder"]:
            self.assertTrue(self.text(f"#{view} h1, #{view} h2"), view)
        self.assertGreater(self.colours_of(".plot"), 4)
        self.assertIn("train.py:11 step", self.text("#holders"))

    def test_a_rehearsal_says_whether_it_fits_and_counts_events_instead_of_time(self):
        self.open(self.samples.rehearsal(self.page, fits=True))
        self.assertEqual(self.browser.errors, [])
        for words in ("FITS", "If it reads no value.", "At its peak it takes 20.00 MiB.", "a simulated card"):
            self.assertIn(words, self.text("#verdict"))
        self.assertIn("Where the memory was at the peak", self.text("#memory"))
        self.assertIn("GPU 0, all 2\u00a0processes", self.text("#memory"))
        for words in ("What fits", "t4-16gb", "Not run: a smaller optimizer."):
            self.assertIn(words, self.text("#fitted"))
        self.assertIn("events before the end", self.text("#time"))
        self.assertNotIn("by time", self.text("#time"))
        self.assertNotIn("oldest", self.text("#holders"))
        self.assertGreater(self.colours_of(".plot"), 4)

    def test_a_rehearsal_that_does_not_fit_shows_the_failure(self):
        self.open(self.samples.rehearsal(self.page, fits=False))
        self.assertEqual(self.browser.errors, [])
        self.assertIn("DOES NOT FIT", self.text("#verdict"))
        self.assertIn("Where the memory was when it failed", self.text("#memory"))
        self.assertIn("What would have fitted", self.text("#fitted"))

    def test_a_snapshot_without_a_history_shows_where_the_blocks_are(self):
        self.open(self.samples.without_history())
        self.assertEqual(self.browser.errors, [])
        self.assertIn("NO FAILURE", self.text("#verdict"))
        self.assertIn("This snapshot holds no history.", self.text("main"))
        self.assertGreater(self.colours_of(".map canvas"), 1)

    def test_the_ranks_of_a_training_stand_side_by_side(self):
        self.open(self.samples.ranks())
        self.assertEqual(self.browser.errors, [])
        self.assertIn("Rank 1 failed first", self.text("#verdict"))
        for words in ("no report of this start: it was killed", "12.00 MiB", "recompute=0", "1.5 s"):
            self.assertIn(words, self.text("#ranks"))
        self.assertIn("rank 1 has the plan recompute=0", self.text("#differences"))
        self.assertEqual(self.browser.value("document.querySelectorAll('main > section').length"), 3)
        self.browser.resize(390, 844, 2, True)
        self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), 390)

    def test_fragmentation_shows_what_is_in_the_way(self):
        self.open(self.samples.fragmented())
        self.assertEqual(self.browser.errors, [])
        self.assertIn("Fragmentation", self.text("#verdict"))
        for words in ("Closest to a piece that is large enough", "40.00 MiB", "38.00 MiB", "train.py:3 keep"):
            self.assertIn(words, self.text("#memory"))

    def test_it_fits_a_phone(self):
        self.browser.resize(390, 844, 2, True)
        self.open(self.page)
        self.assertLessEqual(self.browser.value("document.documentElement.scrollWidth"), 390)
        # No column is squeezed until its words stand one letter below the other.
        tallest = self.browser.value("Math.max(...[...document.querySelectorAll('#events tr, #fitted tr')]"
                                     ".map((row) => row.offsetHeight))")
        self.assertLess(tallest, 130)

    def test_every_control_has_a_name(self):
        self.open(self.page)
        self.browser.call("Accessibility.enable")
        roles = ("button", "slider", "searchbox", "link", "image", "region", "group")
        nameless = [node["role"]["value"] for node in self.browser.call("Accessibility.getFullAXTree")["nodes"]
                    if not node.get("ignored") and node.get("role", {}).get("value") in roles and
                    not node.get("name", {}).get("value", "").strip()]
        self.assertEqual(nameless, [])

    def test_texts_have_the_contrast_of_wcag_aa(self):
        self.open(self.page)
        for dark in (False, True):
            self.browser.dark(dark)
            for ink, ground in CONTRASTS:
                pair = f"{ink} on {ground}, {'dark' if dark else 'light'}"
                self.assertGreaterEqual(self.contrast(ink, ground), 4.5, pair)

    def contrast(self, a, b):
        light = [self.luminance(name) for name in (a, b)]
        return (max(light) + 0.05) / (min(light) + 0.05)

    def luminance(self, name):
        colour = self.browser.value(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()")
        parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


if __name__ == "__main__":
    if program() is None:
        print("no Chromium: tools/setup --oldest installs it")
        sys.exit(77)
    unittest.main(verbosity=2)
