# SPDX-License-Identifier: BSD-2-Clause
"""What a guest is made of: packages of Debian 12, its kernel, the modules for a device, and the initial file system.

Kernel and modules are kept in $XDG_CACHE_HOME/weft-vm (or ~/.cache/weft-vm); to get a newer kernel, remove that folder.
Nothing of it is installed on this machine.
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
# What the kernel needs for the guest's file systems and output, and for each device; with what these depend on, in this order.
# A device also names the modules that the kernel would load by itself if it could: checksums, and what programs open.
COMMON = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p", "overlay"]
RDMA = ["dummy", "crc32_generic", "crc32c_generic", "libcrc32c", "rdma_ucm"]
MODULES = {"none": COMMON, "rxe": COMMON + RDMA + ["rdma_rxe"], "siw": COMMON + RDMA + ["siw"]}


class Problem(Exception):
    """Why no guest can start: cause, place and remedy."""


def say(text):
    print(f"guest: {text}", file=sys.stderr, flush=True)


def command(*words, what, remedy, **options):
    """Runs a program, returns its stdout."""
    result = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False, **options)
    if result.returncode:
        last = "\n".join((result.stderr or result.stdout).strip().splitlines()[-3:])
        raise Problem(f"{what}: `{' '.join(words[:3])} ...` ended with {result.returncode}: {last}\n  {remedy}")
    return result.stdout


def apt(*words, **options):
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    return command("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "-o", "DPkg::Lock::Timeout=300", *words, env=environment,
                   what="apt-get failed", remedy="the guest is made of Debian's packages; see that apt-get works", **options)


def require_debian():
    if not shutil.which("apt-get") or not shutil.which("dpkg") or os.uname().machine != "x86_64":
        raise Problem(f"the guest is made of Debian's packages for amd64; this machine is {os.uname().machine}"
                      f" {'with' if shutil.which('apt-get') else 'without'} apt-get\n  run it on Debian 12, amd64")


def install(packages):
    """Installs those of the packages that are missing; as root, else says what to do."""
    require_debian()
    missing = [name for name in packages if "ok installed" not in
               subprocess.run(["dpkg-query", "-W", "-f=${Status}", name], capture_output=True, text=True, check=False).stdout]
    if not missing:
        return
    if os.geteuid():
        raise Problem(f"packages are missing: {' '.join(missing)}\n  as root: apt-get install {' '.join(missing)}")
    say(f"installs {' '.join(missing)}")
    with locked():
        refresh(missing[0])
        apt("install", "-y", "--no-install-recommends", *missing)


def refresh(package):
    """Gets the list of packages where there is none yet."""
    known = subprocess.run(["apt-cache", "show", package], capture_output=True, check=False)
    if known.returncode:
        apt("update")


def download(packages, folder):
    """The packages, unpacked in the folder."""
    try:
        apt("download", *packages, cwd=folder)
    except Problem:  # a list of packages may name files that are no longer there
        if os.geteuid():
            raise
        apt("update")
        apt("download", *packages, cwd=folder)
    for package in glob.glob(f"{folder}/*.deb"):
        command("dpkg-deb", "-x", package, folder, what="unpacking a package", remedy="see that there is space for 1 GiB")
        os.unlink(package)


def depends(package, pattern):
    """The first package that this one depends on, of those that match."""
    for name in re.findall(r"^ *Depends: (\S+)", command("apt-cache", "depends", package, what="looking for the kernel",
                                                         remedy="as root: apt-get update"), re.M):
        if re.search(pattern, name):
            return name
    raise Problem(f"the package {package} depends on none that matches {pattern}\n  Debian 12's kernel is needed")


def cache_folder():
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weft-vm")


@contextlib.contextmanager
def locked():
    """One at a time installs packages and fills the cache."""
    os.makedirs(cache_folder(), exist_ok=True)
    with open(os.path.join(cache_folder(), "lock"), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def provide(name, make):
    """The folder `name` of the cache; `make` fills it where it is not there."""
    path = os.path.join(cache_folder(), name)
    with locked():
        if not os.path.isdir(path):
            say(f"makes {path}")
            with tempfile.TemporaryDirectory(dir=cache_folder()) as new:
                make(new)
                os.mkdir(f"{new}/done")
                for kept in os.listdir(f"{new}/keep"):
                    os.rename(f"{new}/keep/{kept}", f"{new}/done/{kept}")
                os.rename(f"{new}/done", path)
    return path


def kernel():
    """A folder with vmlinux, busybox, version (of the package), release (uname -r) and modules/NAME.ko."""
    wanted = hashlib.sha256(" ".join(sum(MODULES.values(), [])).encode()).hexdigest()[:8]
    return provide(f"kernel-{wanted}", make_kernel)


def make_kernel(folder):
    require_debian()
    refresh("linux-image-amd64")
    package = depends("linux-image-amd64", "^linux-image-")
    download([package, "busybox-static"], folder)
    keep = f"{folder}/keep"
    os.makedirs(f"{keep}/modules")
    release = package.removeprefix("linux-image-")
    with open(f"{folder}/boot/vmlinuz-{release}", "rb") as file:
        image = file.read()
    start = image.find(b"\xfd7zXZ\0")  # unpacked here it starts sooner than unpacked in the guest
    write(f"{keep}/vmlinux", lzma.LZMADecompressor().decompress(image[start:]) if start >= 0 else image)
    shutil.copy(f"{folder}/bin/busybox" if os.path.exists(f"{folder}/bin/busybox") else f"{folder}/usr/bin/busybox", keep)
    write(f"{keep}/release", release.encode())
    write(f"{keep}/version", re.search(r"^Version: (\S+)", command(
        "apt-cache", "show", package, what="the kernel's version", remedy="as root: apt-get update"), re.M)[1].encode())
    for path in glob.glob(f"{folder}/**/modules/{release}", recursive=True):
        keep_modules(path, f"{keep}/modules")


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def keep_modules(tree, folder):
    """Copies the modules of all devices, and those that they depend on, from the kernel's tree into the folder."""
    found = {}
    for path in glob.glob(f"{tree}/kernel/**/*.ko*", recursive=True):
        found[os.path.basename(path).split(".ko")[0].replace("-", "_")] = path
    with open(f"{tree}/modules.builtin", encoding="utf-8") as file:
        built_in = {os.path.basename(line.strip()).removesuffix(".ko").replace("-", "_") for line in file}
    wanted = sum(MODULES.values(), [])
    while wanted:
        name = wanted.pop()
        if os.path.exists(f"{folder}/{name}.ko") or name in built_in or (name == "siw" and name not in found):
            continue  # siw, which Debian's kernel lacks, is built by siw()
        if name not in found:
            raise Problem(f"{tree} has no module {name}\n  Debian 12's kernel is needed")
        with open(found[name], "rb") as file:
            data = file.read()
        write(f"{folder}/{name}.ko", lzma.decompress(data) if found[name].endswith(".xz") else data)
        wanted += needs(f"{folder}/{name}.ko")


def needs(path):
    """The modules that a module says it depends on."""
    with open(path, "rb") as file:
        found = re.search(rb"\0depends=([^\0]*)\0", file.read())
    return [name.replace("-", "_") for name in found[1].decode().split(",") if name] if found else []


def siw(kernel_folder):
    """The module siw.ko for this kernel; built once, from Debian's sources of this kernel."""
    built = os.path.join(kernel_folder, "modules", "siw.ko")
    if os.path.exists(built):
        return built
    with open(f"{kernel_folder}/release", encoding="utf-8") as release, open(f"{kernel_folder}/version", encoding="utf-8") as version:
        release, version = release.read(), version.read()
    folder = provide(f"siw-{release}-{version}", lambda new: make_siw(new, release, version))
    return f"{folder}/siw.ko"


def make_siw(folder, release, version):
    install(["make", "gcc-12", "libelf1"])
    source = "linux-source-" + ".".join(release.split(".")[:2])
    headers = f"linux-headers-{release}"
    download([f"{source}={version}", f"{headers}={version}", f"{depends(headers, 'common')}={version}",
              depends(headers, "kbuild")], folder)
    command("tar", "-xJf", f"{folder}/usr/src/{source}.tar.xz", "-C", folder, f"{source}/drivers/infiniband/sw/siw",
            what="unpacking siw", remedy="see that there is space for 1 GiB and that xz-utils is installed")
    # The packages expect to lie in /usr.
    makefile = f"{folder}/usr/src/{headers}/Makefile"
    with open(makefile, encoding="utf-8") as file:
        text = file.read()
    write(makefile, text.replace("/usr/src/", f"{folder}/usr/src/").encode())
    kbuild = os.readlink(glob.glob(f"{folder}/usr/src/linux-headers-*-common/scripts")[0])
    if os.path.isabs(kbuild):
        raise Problem(f"{headers} has an absolute link to {kbuild}\n  this is for Debian 12's kernel")
    command("make", "-s", "-C", f"{folder}/usr/src/{headers}", f"M={folder}/{source}/drivers/infiniband/sw/siw", "CONFIG_RDMA_SIW=m",
            "modules", what=f"building siw for {release}", remedy="`run --device rxe` does without siw")
    os.mkdir(f"{folder}/keep")
    command("strip", "-g", "-o", f"{folder}/keep/siw.ko", f"{folder}/{source}/drivers/infiniband/sw/siw/siw.ko",
            what="building siw", remedy="install binutils")


def load_order(device, folder, extra):
    """The modules of a device, each behind those that it depends on: paths."""
    order = []

    def add(name):
        path = extra.get(name, f"{folder}/modules/{name}.ko")
        if path not in order and os.path.exists(path):  # what is not there is a part of the kernel
            for other in needs(path):
                add(other)
            order.append(path)

    for name in MODULES[device]:
        add(name)
    return order


def initrd(device, files):
    """The guest's first file system as the bytes of a cpio archive: busybox, init, the modules, and the files of this run."""
    folder = kernel()
    entries = {name: (stat.S_IFDIR | 0o755, b"") for name in ["bin", "dev", "proc", "sys", "host", "memory", "modules", "root", "job"]}

    def add(name, path, mode=0o644):
        with open(path, "rb") as file:
            entries[name] = (stat.S_IFREG | mode, file.read())

    add("bin/busybox", f"{folder}/busybox", 0o755)
    add("init", f"{HERE}/init", 0o755)
    for number, path in enumerate(load_order(device, folder, {"siw": siw(folder)} if device == "siw" else {})):
        add(f"modules/{number:02}-{os.path.basename(path)}", path)
    for name, data in files.items():
        entries[f"job/{name}"] = (stat.S_IFREG | 0o644, data)
    return f"{folder}/vmlinux", cpio(entries)


def cpio(entries):
    """An archive in the kernel's format "newc" of {path: (mode, content)}."""
    archive = bytearray()
    for number, (name, (mode, data)) in enumerate([*entries.items(), ("TRAILER!!!", (0, b""))], 1):
        fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        archive += bytes(-len(archive) % 4) + data
        archive += bytes(-len(archive) % 4)
    return bytes(archive)
