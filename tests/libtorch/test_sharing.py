"""CUDA tensors between processes, with Spillway's allocator in both and beside PyTorch's own.

The processes are real, and so are the kills.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import simulated

PROGRAM = pathlib.Path(__file__).with_name("programs") / "sharing_program.py"


class Sharing(unittest.TestCase):
    def share(self, case, sender, receiver, *arguments, **settings):
        """Runs a case; its output, after nothing was said in any process's name and no referee saw a violation."""
        with tempfile.TemporaryDirectory() as folder:
            reports = pathlib.Path(folder) / "reports"
            reports.mkdir()
            outcome = simulated.run(sys.executable, PROGRAM, case, sender, receiver, *arguments,
                                    SPILLWAY_SIM_REPORT=str(reports / "%p"), **settings)
            self.assertEqual(outcome.status, 0, outcome.errors)
            self.assertEqual(outcome.output[-1], "good", outcome.errors)
            self.assertEqual(outcome.simulator_remarks(), [])
            for report in reports.iterdir():
                violations = json.loads(report.read_text())["violations"]
                self.assertEqual(violations["count"], 0, violations["texts"])
            return outcome.output[:-1]


class Pairs(Sharing):
    """Each allocator sends to each, where one of the two is Spillway's."""

    def test_spillway_to_spillway(self):
        self.share("pass", "spillway", "spillway")

    def test_spillway_to_native(self):
        self.share("pass", "spillway", "native")

    def test_spillway_to_expandable(self):
        self.share("pass", "spillway", "expandable")

    def test_native_to_spillway(self):
        self.share("pass", "native", "spillway")

    def test_expandable_to_spillway(self):
        self.share("pass", "expandable", "spillway")

    def test_views_share_one_mapping(self):
        self.share("views", "spillway", "spillway")

    def test_a_handle_that_is_open_is_not_mapped_again(self):
        self.assertEqual(self.share("twice", "spillway", "spillway"), ["one mapping True", f"sum {3 << 20}"])

    def test_what_the_child_made_comes_back(self):
        self.share("both", "spillway", "spillway")

    @unittest.skipIf(simulated.MINOR < 10, "pools came to have the choice with 2.10")
    def test_whole_allocations_go_as_the_native_allocator_sends_them(self):
        for receiver in ("spillway", "native"):
            self.assertEqual(self.share("whole", "spillway", receiver), ["kind c 66"])

    def test_what_the_receiver_freed_is_there_when_memory_is_short(self):
        for allocator in ("native", "spillway"):
            self.share("short", allocator, "spillway", capacity="1GiB")


class Permission(Sharing):
    """Where the system forbids taking descriptors of another process, the other is asked for them."""

    def test_spillway_asks_at_the_socket(self):
        self.assertEqual(self.share("forbidden", "spillway", "spillway"), [f"sum: {float(400 << 20)}"])

    def test_the_native_allocator_is_named_where_there_is_no_socket(self):
        output = self.share("forbidden", "expandable", "spillway")
        self.assertIn("ptrace_scope", output[0])
        self.assertIn("use Spillway's allocator in that process too", output[0])

    def test_both_ways_close_their_descriptors_and_unmap(self):
        for way in ("allowed", "forbidden"):
            self.share("descriptors", "spillway", "spillway", way)

    @unittest.skipIf(os.geteuid() != 0, "only root can become another user")
    def test_only_the_right_process_is_asked_and_only_its_user_answered(self):
        another, refused = self.share("sockets", "spillway", "spillway")
        self.assertIn("another process answers there", another)
        # It hangs up, before or after it was written to.
        self.assertRegex(refused, "it has stopped listening|it stopped answering")

    def test_processes_with_few_descriptors_get_more(self):
        """200 pages and more, by either way."""
        for case in ("short", "forbidden"):
            command = 'ulimit -S -n 128; exec "$0" "$@"'
            outcome = simulated.run("bash", "-c", command, sys.executable, PROGRAM, case, "spillway", "spillway",
                                    capacity="1GiB")
            self.assertEqual(outcome.output[-1:], ["good"], outcome.errors)


class Wrong(Sharing):
    def test_each_wrong_handle_says_what_is_wrong(self):
        output = self.share("wrong", "spillway", "spillway")
        for line, text in zip(output, [
                "cut short", "version 9", "unknown kind 120", "cut short", "cut short",
                "longer than it says", "has ended", "no process, no pages, or no size", "has ended"], strict=True):
            self.assertIn(text, line)
            self.assertIn("Spillway's allocator cannot open a shared CUDA tensor", line)


class Deaths(Sharing):
    def test_the_receiver_dies_before_it_opens_the_tensor(self):
        self.assertEqual(self.share("receiver_dies", "spillway", "spillway", "before")[0], "value good")

    def test_the_receiver_dies_while_it_uses_the_tensor(self):
        output = self.share("receiver_dies", "spillway", "spillway", "reading")
        native = self.share("receiver_dies", "native", "native", "reading")
        self.assertEqual(output, native)

    def test_the_receiver_dies_after_it_freed_the_tensor(self):
        output = self.share("receiver_dies", "spillway", "spillway", "freed")
        self.assertEqual(output, ["value good", "held 0"])

    def test_the_sender_dies_before_the_tensor_is_opened(self):
        output = self.share("sender_dies", "spillway", "spillway", "sent")
        self.assertEqual(output, self.share("sender_dies", "native", "native", "sent"))
        self.assertEqual(output[-1], "left 0 0")

    def test_receivers_die_at_any_moment(self):
        self.share("receivers_die", "spillway", "spillway", "1")

    def test_the_sender_dies_while_the_receiver_uses_the_tensor(self):
        self.assertEqual(self.share("sender_dies", "spillway", "spillway", "read"), ["read", "left 0 0"])


class Peers(unittest.TestCase):
    """Copies between devices do what they do natively, and no device touches memory that it may not."""
    PROGRAM = pathlib.Path(__file__).with_name("programs") / "peer_program.py"

    def compare(self, *command):
        outcomes = [simulated.run(*command, sys.executable, self.PROGRAM, *arguments, SPILLWAY_SIM_DEVICES="2")
                    for arguments in ([], ["spillway"])]
        native, ours = outcomes
        for outcome in outcomes:
            self.assertEqual(outcome.status, 0, outcome.errors)
            self.assertEqual(outcome.violations(), "")
        self.assertEqual(ours.output, native.output)
        return ours.output

    def test_with_peer_access(self):
        self.assertIn("True", self.compare())

    def test_without_peer_access(self):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "no_peers.c"
            source.write_text("int cudaDeviceCanAccessPeer(int* can, int a, int b) { return *can = 0 * (a + b); }")
            library = pathlib.Path(folder) / "libno_peers.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
            before_the_simulators = 'LD_PRELOAD="$0:$LD_PRELOAD" exec "$@"'
            self.assertIn("False", self.compare("bash", "-c", before_the_simulators, library))


if __name__ == "__main__":
    unittest.main()
