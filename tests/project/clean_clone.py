"""What a stranger gets: a clean clone in an empty folder runs what the README says.

The clone has the caches of the machine (packages, compiler) and nothing else: while its commands run, this checkout and
its build are hidden from them by an empty folder mounted over it. Where the machine refuses that, the clone's files are
searched for this checkout's path instead.

Usage: clean_clone.py CHECKOUT
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

COMMANDS = "tools/demo --short && tools/check-readme README.md"


def copy_work(checkout, clone):
    """What is not committed yet belongs to what is tested."""
    def listed(*words):
        names = subprocess.run(["git", "-C", checkout, *words, "-z"], check=True, capture_output=True).stdout
        return [os.fsdecode(name) for name in names.split(b"\0") if name]

    for name in listed("diff", "--name-only", "HEAD") + listed("ls-files", "--others", "--exclude-standard"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        if (checkout / name).exists():
            shutil.copy2(checkout / name, clone / name, follow_symlinks=False)
        else:
            (clone / name).unlink(missing_ok=True)


def hiding(checkout):
    """The words before a command that hide the checkout from it; none where the machine refuses them."""
    for flags in ("-m", "-rm"):
        words = ["unshare", flags, "sh", "-c", f'mount -t tmpfs tmpfs "{checkout}" && exec "$@"', "sh"]
        if subprocess.run([*words, "true"], capture_output=True).returncode == 0:
            return words
    return []


def mentions(folder, path):
    found = subprocess.run(["grep", "-rlF", "-e", f"{path}/", folder], capture_output=True, text=True).stdout
    return found.splitlines()


def environment():
    """Nothing of this checkout's: what tools/test and ctest have set is not a stranger's."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("SPILLWAY_", "CCACHE_", "CMAKE_", "GTEST_")) or name == "SPILLWAY_CACHE"}


def main():
    checkout = pathlib.Path(sys.argv[1]).resolve()
    hidden = hiding(checkout)
    with tempfile.TemporaryDirectory(prefix="spillway-clone-") as folder:
        clone = pathlib.Path(folder) / "spillway"
        subprocess.run(["git", "clone", "-q", "--no-hardlinks", checkout, clone], check=True)
        copy_work(checkout, clone)
        ended = subprocess.run([*hidden, "bash", "-c", f"cd {clone} && {COMMANDS}"], cwd="/", env=environment())
        if ended.returncode != 0:
            print(f"clean_clone: in a clean clone this failed: {COMMANDS}", file=sys.stderr)
            return 1
        if not hidden:
            print("clean_clone: no mount namespace here; looking for this checkout's path in the clone's build instead")
            found = mentions(clone / "build", checkout)
            if found:
                print("clean_clone: the clone's build names this checkout:\n" + "\n".join(found), file=sys.stderr)
                return 1
    print("clean_clone: a clean clone runs what the README says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
