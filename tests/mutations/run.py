"""run.py [NAME...]: each patch below this folder breaks the code in one plausible way, and a test must notice it.

In a scratch clone of HEAD, built once, each is applied, what its tests need is built, these run, and it is reverted.
Prints who noticed it. Ends with 1 if nobody did, if a patch does not apply or build, or if its tests always fail.
    run.py --check      only that every patch has its head and applies to this tree
    run.py --in FOLDER  a clone that is kept, for who writes mutations
A patch's head: "Breaks: what goes wrong", "Noticed by: a regular expression of ctest's names", "Builds: targets", and
where it is about some of their cases "Case: a filter of GoogleTest's".
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
MOST_SECONDS = 600  # of the tests of one mutation while nothing is broken
NO_CASE = "Running 0 tests from 0 test suites"  # GoogleTest, which takes that for success
LEAST_PATIENCE = 30  # seconds; five times as long as without the mutation is no hang either


class Mutation:
    """A patch and its head."""

    def __init__(self, path):
        self.path, self.name = path, path.stem
        head = path.read_text().split("\ndiff --git ")[0]
        fields = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
        self.tests, self.case = fields.get("Noticed by", ""), fields.get("Case", "*")
        self.targets = fields.get("Builds", "").split()
        self.lacks = [name for name in ("Breaks", "Noticed by", "Builds") if not fields.get(name)]


def apply(tree, mutation, *options):
    """"", or why the patch does not apply."""
    done = subprocess.run(["git", "apply", *options, str(mutation.path)], cwd=tree, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[0]


def check(mutations):
    wrong = [f"{it.name}: no line '{lack}: ...'" for it in mutations for lack in it.lacks]
    wrong += [f"{it.name}: {why}" for it in mutations if (why := apply(ROOT, it, "--check"))]
    print("\n".join(wrong) or f"{len(mutations)} mutations apply")
    return 1 if wrong or not mutations else 0


class Tree:
    """A clone of HEAD that is built as it is needed."""

    def __init__(self, folder):
        self.folder, self.patience = folder, {}
        self.environment = dict(os.environ, PATH=f"{folder}/.deps/bin:{os.environ['PATH']}",
                                CMAKE_BUILD_PARALLEL_LEVEL=str(os.cpu_count()))
        if not folder.exists():
            subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(folder)], check=True)
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        self._run(["git", "fetch", "-q", "origin"], check=True)
        self._run(["git", "reset", "-q", "--hard", head.strip()], check=True)
        self._run(["tools/setup", "--oldest"], check=True)
        self._run(["cmake", "--preset", "release"], check=True)

    def _run(self, command, **options):
        return subprocess.run(command, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, **options)

    def build(self, targets):
        """"", or the first error."""
        done = self._run(["cmake", "--build", "--preset", "release", "--target", *targets])
        errors = [line for line in done.stdout.splitlines() if "error:" in line]
        return "" if done.returncode == 0 else (errors or done.stdout.splitlines()[-1:])[0]

    def failing(self, mutation, most_seconds=MOST_SECONDS):
        """The tests that fail, or None where there is no test of that name, or no such case in it."""
        results = self.folder / "build" / "mutation.xml"
        results.unlink(missing_ok=True)
        self.environment["GTEST_FILTER"] = mutation.case
        command = ["ctest", "--test-dir", "build", "-R", f"^({mutation.tests})$", "--output-junit", str(results)]
        ctest = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            ctest.wait(most_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(ctest.pid, signal.SIGKILL)
            ctest.wait()
            return [f"{mutation.tests} does not end"]
        cases = list(xml.etree.ElementTree.parse(results).iter("testcase")) if results.exists() else []
        cases = [case for case in cases if NO_CASE not in case.findtext("system-out", "")]
        return [case.get("name") for case in cases if case.get("status") == "fail"] if cases else None

    def silent(self, mutations):
        """Why tests say nothing, by the mutation that names them: as long as nothing is broken all pass."""
        if why := self.build(["all"]):
            sys.exit(f"HEAD does not build: {why}")
        said, known = {}, {}
        for mutation in mutations:
            key = (mutation.tests, mutation.case)
            if key not in known:
                start = time.monotonic()
                failing = self.failing(mutation)
                self.patience[key] = LEAST_PATIENCE + 5 * (time.monotonic() - start)
                known[key] = "there is no such test" if failing is None else ", ".join(failing)
            if known[key]:
                said[mutation.name] = f"without it too: {known[key]}"
        return said

    def judge(self, mutation):
        """Who noticed it; and whether somebody did."""
        if why := apply(self.folder, mutation):
            return why, False
        why = self.build(mutation.targets)
        failing = [] if why else self.failing(mutation, self.patience[mutation.tests, mutation.case])
        apply(self.folder, mutation, "-R")
        self.build(mutation.targets)  # or the next one's tests would find what is broken here
        if why:
            return f"it does not build: {why}", False
        return (", ".join(failing), True) if failing else ("NOT NOTICED", False)


def run(mutations, folder):
    tree, status = Tree(folder), 0
    silent = tree.silent(mutations)
    for mutation in mutations:
        start = time.monotonic()
        said, noticed = (silent[mutation.name], False) if mutation.name in silent else tree.judge(mutation)
        status |= 0 if noticed else 1
        print(f"{mutation.name:44} {time.monotonic() - start:4.0f} s  {said}", flush=True)
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--in", dest="folder", type=pathlib.Path)
    asked = parser.parse_args()
    mutations = [Mutation(path) for path in sorted(FOLDER.rglob("*.patch"), key=lambda path: path.stem)]
    unknown = set(asked.names) - {it.name for it in mutations}
    if unknown:
        parser.error(f"there is no mutation {', '.join(sorted(unknown))}")
    chosen = [it for it in mutations if not asked.names or it.name in asked.names]
    status = check(chosen)
    if status or asked.check:
        return status
    if asked.folder:
        return run(chosen, asked.folder.resolve())
    with tempfile.TemporaryDirectory() as folder:
        return run(chosen, pathlib.Path(folder) / "tree")


sys.exit(main())
