"""The checks of layers, definitions, pages and reports must find what they are there to find: each sees an offence."""
import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import tempfile

root = pathlib.Path(sys.argv[1])


def load(name):
    loader = importlib.machinery.SourceFileLoader(pathlib.Path(name).name.replace("-", "_"), str(root / "tools" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


layers = load("checks/layers")
assert list(layers.offences("trace/writer.cpp", '#include "allocator/units.h"\n'))
assert list(layers.offences("allocator/heap.cpp", '#include "strategies/ladder.h"\n'))
assert list(layers.offences("allocator/heap.cpp", "#include <ATen/ATen.h>\n"))
assert list(layers.offences("trainer/plan/plan.cpp", "#include <c10/core/Device.h>\n"))
assert list(layers.offences("driver/x.h", "#include <trace/record.h>\n"))
assert not list(layers.offences("strategies/ladder/ladder.cpp", '#include "allocator/units.h"\n#include <vector>\n'))
assert not list(layers.offences("trainer/step/step.cpp", "#include <ATen/ops/add.h>\n"))

# The analysis itself runs on each build (tools/style); what it cannot see is looked for in the text.
locks = load("checks/lock-rules")
with tempfile.TemporaryDirectory() as folder:
    for each in locks.FOLDERS:
        (pathlib.Path(folder) / each).mkdir()
    bad = pathlib.Path(folder) / "simulator" / "bad.h"
    bad.write_text("  std::mutex mutex_;\n  // std::mutex\n  SpinLock lock_;\n"
                   "  Mutex<LockOrder::kHeap, SpinLock> good_;\n  static std::shared_mutex all;\n"
                   "  const std::lock_guard<std::mutex> lock(generator.mutex());\npthread_mutex_t c;\n")
    found = locks.unnamed_locks(pathlib.Path(folder), {})
    assert [line.split(":")[1] for line in found] == ["1", "3", "5", "7"]
    # An exception is for what is there, and only as long as it is there.
    assert not list(locks.unnamed_locks(pathlib.Path(folder), {"simulator/bad.h": "a reason"}))
    (pathlib.Path(folder) / "trainer" / "good.h").write_text("Mutex<LockOrder::kLeaf> mutex_;\n")
    both = {"simulator/bad.h": "a reason", "trainer/good.h": "a reason"}
    assert [line.split()[1] for line in locks.unnamed_locks(pathlib.Path(folder), both)] == ["trainer/good.h"]

# What clang-tidy found clean is known in every checkout, until something that it depends on changes.
tidy = load("checks/tidy")


def key_of(folder, name, text, flag="-O2"):
    """That of a file in the checkout folder/name, which reads another of the checkout and one beside all checkouts."""
    root, outside = pathlib.Path(folder) / name, pathlib.Path(folder) / "m.h"
    outside.write_text("int m;\n")
    for name, said in ("a.cpp", f'#include "{root}/a.h"\n'), ("a.h", text), (".deps/b.h", "int b;\n"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(said)
    build = tidy.Build.__new__(tidy.Build)
    build.root, build.rules, build.hashes = root, b"rules", {}
    build.read_by = {"a.o": [str(root / name) for name in ("a.cpp", "a.h", ".deps/b.h")] + [str(outside)]}
    build.compilations = {path: "a.o" for path in build.read_by["a.o"]}
    build.commands = {"a.o": {"command": f"c++ -I{root} -fmacro-prefix-map={'../' * len(root.parts)}= {flag} -c a.cpp"}}
    return build.key("a.cpp")


with tempfile.TemporaryDirectory() as folder:
    here = key_of(folder, "a", "int a;\n")
    assert key_of(folder, "z/deeper", "int a;\n") == here  # a name behind "m.h"
    assert key_of(folder, "changed", "int c;\n") != here
    assert key_of(folder, "flagged", "int a;\n", "-O0") != here

house = load("checks/house")
assert house.own_statements("int a; void f() { int b; } class C { int d; };").count("int b") == 0
members = house.own_statements("public: int a; void f() { int b; } using X = int; void g();")
assert sum(map(house.is_member, members)) == 3
assert house.folder_sizes(["a/b.h", "a/c.h", "a/d/e.h", "f", "tests/programs/g.py"]) == {"a": 2, "a/d": 1, ".": 1}

definitions = load("checks/one-definition")
places = definitions.places_of({
    "a.h": "namespace spillway {\nstruct Growth {\nenum class Kind : int {\n}  // namespace spillway\n",
    "b.h": "namespace spillway {\nclass Growth final : Base {\nstruct Ahead;\n}  // namespace spillway\n",
    "c.cpp": "namespace spillway {\nnamespace {\nstruct Kind {\n}  // namespace\n}  // namespace spillway\n",
    "d.cpp": "namespace other {\nstruct Kind {\n}  // namespace other\n"})
assert places["spillway::Growth"] == ["a.h:2", "b.h:2"]
assert places["spillway::Kind"] == ["a.h:3"] and places["other::Kind"] == ["d.cpp:2"]

pages = load("check-readme")
assert pages.matches(["a … c", "…", "z"], ["a bbb c", "x", "y", "z"])
assert not pages.matches(["a … c"], ["a bbb d"])
assert not pages.matches(["a", "b"], ["a"])
assert [c for c, _ in pages.sessions(["$ one", "out", "$ two"])] == ["one", "two"]
assert pages.matches(["took 1.2 s,  3 GiB"], ["took 10.5 s, 3 GiB"], [r"\d+\.\d s"])
assert not pages.matches(["took 1.2 s, 3 GiB"], ["took 1.2 s, 4 GiB"], [r"\d+\.\d s"])
assert not pages.matches(["took 1.2 s"], ["took 1.3 s"])
assert pages.matches(["840      246 / 4096"], ["1201 246 / 4096"], [r"\d+(?= +\d+ /)"])
page = "<!-- varies: \\d+ s | \\d+ B -->\n```console\n$ one\n2 s\n```\n"
assert list(pages.blocks(page)) == [(3, False, ["$ one", "2 s"], [r"\d+ s", r"\d+ B"])]

pages = load("checks/pages")
assert list(pages.missing_from_index(["docs/a.md", "docs/b.md", "x.md"], "- [A](a.md#one)")) == [
    "docs/README.md: docs/b.md is not in the index"]
with tempfile.TemporaryDirectory() as folder:
    here = pathlib.Path(folder)
    (here / "b.md").write_text("# B\n## It's `one`: (two)\n```\n# three\n```\n")
    page = "[b](b.md#its-one-two) `[x](y)` [w](https://example.org)\n\n[c](b.md#three) [d](#four)\n\n[e](e.md)\n"
    (here / "a.md").write_text(page)
    assert list(pages.broken_links("a.md", page, here)) == [
        "a.md:3: b.md has no heading #three", "a.md:3: a.md has no heading #four", "a.md:5: there is no e.md"]


def english(text):
    return [line.split(":")[1] for line in pages.bad_english("p.md", text)]


assert english("It can\nnot.\n\nA. What is it?\n\nIt is. Who asks first, wins.\n\n- Of two, one.\n") == ["1", "6", "8"]
assert english("**What goes.** All.\n\n*Who held it* is a view.\n\n`can not`\n\n| a | What b has |\n" + 25 * "word " +
               "\n\n```\nWhat is here can not be seen\n```\n") == ["8", "1", "7"]
assert list(pages.missing_from_contents("p.md", "[a](#a)\n## A\n## B\n")) == [
    "p.md:3: not in the list by subject: ## B"]
# A text that says nothing wrong, of a trace whose data lack a term.
reports = load("../tests/reports.py")
with tempfile.TemporaryDirectory() as folder:
    trace, command = pathlib.Path(folder) / "run.spill", pathlib.Path(folder) / "spillway"
    trace.touch()

    def opens(rest):
        incident = {"incident": 1, "outcome": "granted", "equation": {"limit_bytes": 1, "residual_bytes": rest}}
        data = json.dumps({"incidents": [incident]})
        command.write_text(f"#!/bin/sh\ncase $* in *--json*) echo '{data}';; *) echo text;; esac\n")
        command.chmod(0o755)
        try:
            return reports.text_of(command, trace) == "text\n"
        except AssertionError:
            return False

    assert opens(0)
    assert not opens(None)
    assert not opens(1)
print("the checks find what they are shown")
