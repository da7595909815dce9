# SPDX-License-Identifier: BSD-2-Clause
"""How Debian's Open MPI 4 is told to use one stack of a libfabric, and nothing else, for ranks of one host.

    environment(stack) | {"LD_LIBRARY_PATH": folder}      and      mpirun(settings(stack), 4) + ["program"]
"""


def environment(stack):
    """To Open MPI the name tcp includes tcp;ofi_rxm, which a library may list first. It asks for no provider by name, so
    what is offered only by its name (a NIC in software, the alias sockets) is named here."""
    if ";" in stack:
        return {}
    return {"FI_PROVIDER": stack if stack in ("cxi", "sockets") else "^ofi_rxm"}


def settings(include):
    """Parameters of MCA; `include` is a stack, or several with commas between them."""
    return {
        "pml": "cm", "mtl": "ofi", "mtl_ofi_provider_include": include,
        "coll": "^sm,hcoll", "rmaps_base_oversubscribe": "1",
        "hwloc_base_binding_policy": "none", "btl_base_warn_component_unused": "0", "mpi_yield_when_idle": "1",
        # What else there is (osc rdma over btl ofi) takes neither of our stacks: see CMakeLists.txt.
        "osc": "pt2pt", "btl": "self",
    }


def mpirun(parameters, ranks):
    """The command before the program of the ranks."""
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
    for key, value in parameters.items():
        command += ["--mca", key, value]
    return command
