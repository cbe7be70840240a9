"""A C program built from an installed tree that was moved after it was installed."""
import unittest

from installed import BUILD, ROOT, Case, covers


class Tree(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tree = cls.install().rename(cls.folder / "moved")

    @unittest.skipUnless(covers, "this system refuses namespaces")
    def test_the_build_is_out_of_sight(self):
        self.assertEqual(self.run_hidden("find", BUILD, ROOT / "python", ROOT / "include", "-type", "f").stdout, "")

    def test_it_names_nothing_of_this_machine(self):
        self.assert_names_nothing_of_this_machine(self.tree)

    def test_a_c_program_finds_the_package(self):
        self.assert_consumer_works(self.tree, self.build_consumer(self.tree))

    def test_a_c_program_links_it_by_hand(self):
        """Through the link in lib/, to the one core."""
        consumer = self.folder / "by-hand"
        self.run_hidden("cc", self.folder / "consumer" / "consumer.c", "-o", consumer, "-I", self.tree / "include",
                        "-L", self.tree / "lib", "-lspillway", f"-Wl,-rpath,{self.tree / 'lib'}")
        self.assert_consumer_works(self.tree, consumer)

    def test_another_version_is_refused(self):
        source = self.folder / "consumer" / "CMakeLists.txt"
        newer = self.folder / "newer"
        newer.mkdir()
        (newer / "CMakeLists.txt").write_text(source.read_text().replace("Spillway 0.1", "Spillway 0.2"))
        ended = self.configure_consumer(newer, newer / "build", self.tree, status=1)
        self.assertIn('compatible with requested version "0.2"', ended.stderr)


if __name__ == "__main__":
    unittest.main()
