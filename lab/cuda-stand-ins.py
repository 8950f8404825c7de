#!/usr/bin/env python3
"""Let a PyPI `torch` be imported without the CUDA libraries it is linked with.

Run by the interpreter whose torch is meant; needs gcc and binutils. The wheel for x86-64 names about a dozen libraries
that come in packages of several gigabytes. Without a GPU none of their functions is reached, so each absent library is
built as a shared object beside torch's own, in which every function that torch may ask for is one that returns "no
device". Where nothing is absent (a CPU wheel, or CUDA installed) nothing is done. For tests only: nothing ships these.
"""

import ctypes
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile

# cudaErrorNoDevice, and CUDA_ERROR_NO_DEVICE of the driver. Registration hands out a pointer, so it gets a real one.
BODY = """
static long somewhere[64];
static long no_device(void) { return 100; }
static void *registered(void) { return somewhere; }
"""


def read(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def loads(name):
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def main():
    torch = pathlib.Path(sysconfig.get_path("purelib")) / "torch"
    objects = sorted([*torch.glob("lib/*.so*"), *torch.glob("_C*.so")])
    if not objects:
        sys.exit(f"no torch in {torch}")
    shipped = {path.name for path in objects}

    absent = {}  # library -> version node -> functions
    defined, unversioned = set(), set()
    for path in objects:
        needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", read("readelf", "-dW", path)))
        for name in needed - shipped - absent.keys():
            if not loads(name):
                absent[name] = {}

    for path in objects:
        owner, node_of = None, {}
        for line in read("readelf", "-VW", path).splitlines():
            if match := re.search(r"\bFile: (\S+)", line):
                owner = match[1]
            elif owner and (match := re.search(r"\bName: (\S+)", line)):
                node_of[match[1]] = owner
        for line in read("nm", "-D", "--with-symbol-versions", path).splitlines():
            *address, kind, symbol = line.split()
            name, _, version = symbol.partition("@")
            if address:
                defined.add(name)
            elif version:
                if (library := node_of.get(version.lstrip("@"))) in absent:
                    absent[library].setdefault(version.lstrip("@"), set()).add(name)
            elif kind == "U":
                unversioned.add(name)
    if not absent:
        print("torch finds all its libraries")
        return

    # A symbol without a version may come from any library of the process, so one of them holds all.
    loose = {name for name in unversioned - defined if re.match(r"(__)?(cu|nv|nccl)", name)}
    first = min(absent)
    with tempfile.TemporaryDirectory() as scratch:
        source, script = pathlib.Path(scratch, "stand-in.c"), pathlib.Path(scratch, "stand-in.map")
        for library, nodes in sorted(absent.items()):
            names = set().union(*nodes.values(), loose if library == first else ())
            lines = [
                f'{"void *" if name.startswith("__cuda") else "long "}{name}(void) '
                f'__attribute__((alias("{"registered" if name.startswith("__cuda") else "no_device"}")));\n'
                for name in sorted(names)
            ]
            source.write_text(BODY + "".join(lines))
            script.write_text("".join(f"{node} {{ {' '.join(name + ';' for name in sorted(functions))} }};\n" for node, functions in nodes.items()))
            versions = [f"-Wl,--version-script={script}"] if nodes else []
            # Under a temporary name first: a run that is cut off leaves no half a library.
            part = torch / "lib" / f"{library}.part"
            read("gcc", "-shared", "-fPIC", "-fno-builtin", "-w", "-o", part, source, f"-Wl,-soname,{library}", *versions)
            part.rename(torch / "lib" / library)
            print(f"built a stand-in for {library} with {len(names)} functions")


if __name__ == "__main__":
    main()
