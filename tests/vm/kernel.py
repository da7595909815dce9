#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""What a guest is made of: Debian 12's packages, its kernel, the modules for a device, and the
initial file system.

Kernel and modules are not installed on this machine but kept in $WEFT_VM_CACHE (or
$XDG_CACHE_HOME/weft-vm, ~/.cache/weft-vm). Remove that folder to get a newer kernel.
"""

import contextlib
import fcntl
import glob
import hashlib
import lzma
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))

# What the guest loads; what these modules depend on comes by itself. The checksums are named
# because the guest's kernel can't load a module when it needs it.
COMMON = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"]
RDMA = ["dummy", "crc32_generic", "crc32c_generic", "libcrc32c", "rdma_ucm"]
MODULES = {"none": COMMON, "rxe": COMMON + RDMA + ["rdma_rxe"], "siw": COMMON + RDMA + ["siw"]}

UPDATE = "as root: apt-get update"
SPACE = "1 GiB of free space is needed there"
DEBIAN_12 = "the guest needs Debian 12's kernel"


class Problem(Exception):
    """Why no guest can start: cause, place and remedy."""


def say(text):
    print(f"guest: {text}", file=sys.stderr, flush=True)


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def command(*words, what, remedy, **options):
    """Runs a program, returns its stdout."""
    result = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False,
                            **options)
    if result.returncode:
        said = "\n".join((result.stderr or result.stdout).strip().splitlines()[-3:])
        raise Problem(f"{what}: `{' '.join(words)}` ended with {result.returncode}: {said}\n"
                      f"  {remedy}")
    return result.stdout


def apt(*words, **options):
    return command("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "-o",
                   "DPkg::Lock::Timeout=300", *words, what="a package can't be had",
                   remedy=f"see that this command works; {UPDATE}",
                   env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, **options)


def require_debian():
    has_apt = shutil.which("apt-get") and shutil.which("dpkg-deb")
    if not has_apt or os.uname().machine != "x86_64":
        raise Problem(f"this machine is {os.uname().machine} {'with' if has_apt else 'without'} "
                      "apt-get; the guest is made of Debian's packages for amd64\n"
                      "  use a machine with Debian 12 on amd64")


def install(packages):
    """Installs those of the packages that are missing; where it is not root it says what to do."""
    require_debian()

    def missing():
        return [name for name in packages if "ok installed" not in subprocess.run(
            ["dpkg-query", "-W", "-f=${Status}", name], capture_output=True, text=True,
            check=False).stdout]

    names = missing()
    if names and os.geteuid():
        raise Problem(f"packages are missing: {' '.join(names)}\n"
                      f"  as root: apt-get install {' '.join(names)}")
    if names:
        with locked():
            names = missing()  # another guest may have installed them meanwhile
            if names:
                say(f"installs {' '.join(names)}")
                get(lambda: apt("install", "-y", "--no-install-recommends", *names))


def get(how):
    """Calls `how`, which gets packages; once more if the list of packages was old or not there."""
    try:
        how()
    except Problem:
        if os.geteuid():
            raise
        apt("update")
        how()


def download(packages, folder):
    """Unpacks packages in the folder."""
    get(lambda: apt("download", *packages, cwd=folder))
    for package in glob.glob(f"{folder}/*.deb"):
        command("dpkg-deb", "-x", package, folder, what=f"{package} can't be unpacked",
                remedy=SPACE)
        os.unlink(package)


def depends(package, pattern):
    """The first package that this one depends on, of those that match."""
    text = command("apt-cache", "depends", package, what="the kernel can't be found", remedy=UPDATE)
    for name in re.findall(r"^ *Depends: (\S+)", text, re.M):
        if re.search(pattern, name):
            return name
    raise Problem(f"the package {package} depends on none that matches {pattern}\n  {DEBIAN_12}")


def cache_folder():
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.environ.get("WEFT_VM_CACHE") or os.path.join(caches, "weft-vm")


@contextlib.contextmanager
def locked():
    """One process at a time installs packages or fills the cache."""
    os.makedirs(cache_folder(), exist_ok=True)
    with open(os.path.join(cache_folder(), "lock"), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def provide(name, make):
    """The path of a folder in the cache. If it isn't there, make(new) makes it, as new/keep."""
    path = os.path.join(cache_folder(), name)
    with locked():
        if not os.path.isdir(path):
            say(f"makes {path}")
            with tempfile.TemporaryDirectory(dir=cache_folder()) as folder:
                os.mkdir(f"{folder}/keep")
                make(folder)
                os.rename(f"{folder}/keep", path)
    return path


def kernel():
    """A folder with vmlinux, busybox, release (of uname -r), version (of the package), modules/."""
    wanted = hashlib.sha256(repr(MODULES).encode()).hexdigest()[:8]
    return provide(f"kernel-{wanted}", make_kernel)


def make_kernel(folder):
    def find():
        return depends("linux-image-amd64", "^linux-image-")

    require_debian()
    get(find)
    package = find()
    download([package, "busybox-static"], folder)
    release = package.removeprefix("linux-image-")
    about = command("apt-cache", "show", package, what="the kernel can't be found", remedy=UPDATE)
    image = read(f"{folder}/boot/vmlinuz-{release}")
    start = image.find(b"\xfd7zXZ\0")  # unpacked here; in the guest that would take seconds
    write(f"{folder}/keep/vmlinux",
          lzma.LZMADecompressor().decompress(image[start:]) if start >= 0 else image)
    write(f"{folder}/keep/release", release.encode())
    write(f"{folder}/keep/version", re.search(r"^Version: (\S+)", about, re.M)[1].encode())
    for busybox in glob.glob(f"{folder}/**/bin/busybox", recursive=True):
        shutil.copy(busybox, f"{folder}/keep")
    os.mkdir(f"{folder}/keep/modules")
    for tree in glob.glob(f"{folder}/**/modules/{release}", recursive=True):
        keep_modules(tree, f"{folder}/keep/modules")


def keep_modules(tree, folder):
    """Copies the modules of all devices, with those that they depend on, to folder/NAME.ko."""
    found = {module_name(path): path
             for path in glob.glob(f"{tree}/kernel/**/*.ko*", recursive=True)}
    with open(f"{tree}/modules.builtin", encoding="utf-8") as file:
        built_in = {module_name(line.strip()) for line in file}
    wanted = set().union(*MODULES.values())
    while wanted:
        name = wanted.pop()
        if name in built_in or os.path.exists(f"{folder}/{name}.ko"):
            continue
        if name in found:
            data = read(found[name])
            write(f"{folder}/{name}.ko",
                  lzma.decompress(data) if found[name].endswith(".xz") else data)
            wanted |= set(needs(f"{folder}/{name}.ko"))
        elif name != "siw":  # Debian 12's kernel lacks it: siw() builds it
            raise Problem(f"the kernel has no module {name}\n  {DEBIAN_12}")


def module_name(path):
    return os.path.basename(path).split(".ko")[0].replace("-", "_")


def needs(path):
    """The modules that a module depends on, as it says itself."""
    found = re.search(rb"\0depends=([^\0]*)\0", read(path))
    return [module_name(name) for name in found[1].decode().split(",") if name] if found else []


def siw(folder):
    """The path of siw.ko for the kernel in the folder. It is built from the kernel's sources."""
    own = f"{folder}/modules/siw.ko"
    if os.path.exists(own):
        return own
    release, version = (read(f"{folder}/{name}").decode() for name in ["release", "version"])
    return provide(f"siw-{version}", lambda new: make_siw(new, release, version)) + "/siw.ko"


def make_siw(folder, release, version):
    source = "linux-source-" + ".".join(release.split(".")[:2])
    headers = f"linux-headers-{release}"
    try:
        download([f"{source}={version}", f"{headers}={version}",
                  f"{depends(headers, 'common')}={version}", depends(headers, "kbuild")], folder)
    except Problem as problem:
        raise Problem(f"siw can't be built for the kernel {version}: {problem}; if Debian has a "
                      f"newer kernel by now, remove {cache_folder()}") from problem
    siw_folder = f"{source}/drivers/infiniband/sw/siw"
    command("tar", "-xJf", f"{folder}/usr/src/{source}.tar.xz", "-C", folder, siw_folder,
            what="the sources of siw can't be unpacked", remedy=f"{SPACE}, and xz-utils")
    # The packages expect to lie in /usr.
    makefile = f"{folder}/usr/src/{headers}/Makefile"
    write(makefile, read(makefile).replace(b"/usr/src/", f"{folder}/usr/src/".encode()))
    command("make", "-s", "-C", os.path.dirname(makefile), f"M={folder}/{siw_folder}",
            "CONFIG_RDMA_SIW=m", "modules", what=f"siw can't be built for the kernel {version}",
            remedy=f"see what it says; the packages {' '.join(BUILD_PACKAGES)} are needed")
    command("strip", "-g", "-o", f"{folder}/keep/siw.ko", f"{folder}/{siw_folder}/siw.ko",
            what="siw can't be copied", remedy=SPACE)


BUILD_PACKAGES = ["make", "gcc-12", "binutils", "xz-utils", "libelf1", "libssl3"]


def load_order(device, folder):
    """The paths of a device's modules, each behind those that it depends on."""
    order = []

    def add(name):
        path = siw(folder) if name == "siw" else f"{folder}/modules/{name}.ko"
        if path not in order and os.path.exists(path):  # what is not there is a part of the kernel
            for other in needs(path):
                add(other)
            order.append(path)

    for name in MODULES[device]:
        add(name)
    return order


def parts(device):
    """What the guest needs: its kernel's path, and {path in the initial file system: content}."""
    if device == "siw":
        install(BUILD_PACKAGES)
    folder = kernel()
    files = {"bin/busybox": read(f"{folder}/busybox"), "init": read(f"{HERE}/init")}
    for number, path in enumerate(load_order(device, folder)):
        files[f"modules/{number:02}-{os.path.basename(path)}"] = read(path)
    return f"{folder}/vmlinux", files


def archive(folders, files):
    """A cpio archive as the kernel takes it (its format "newc")."""
    entries = [(name, stat.S_IFDIR | 0o755, b"") for name in folders]
    entries += [(name, stat.S_IFREG | 0o755, data) for name, data in files.items()]
    result = bytearray()
    for number, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        head = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        result += b"070701" + b"".join(b"%08X" % field for field in head) + name.encode() + b"\0"
        result += bytes(-len(result) % 4) + data
        result += bytes(-len(result) % 4)
    return bytes(result)


def main():
    """Makes what the guests of all devices need, so that their start does not wait for it."""
    try:
        for device in MODULES:
            parts(device)
    except (Problem, OSError) as problem:
        say(problem)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
