// SPDX-License-Identifier: BSD-2-Clause
// What weft.yaml(5) says of keys beyond their line in the table of keys, in mdoc(7).
#include "config/policy_docs.h"
#include "config/policy_keys.h"

namespace weft::config {

namespace {

struct Text {
  std::string_view path, text;
};

constexpr Text kTexts[] = {
    {"providers.enable", R"(Layers and hooks are not affected.
An empty list enables no provider.
Without the key, all may be used.
)"},
    {"providers.disable", R"(A plugin is never opened if none of its units is chosen.
One file must not both enable and disable a unit.
What a weaker file disables can be enabled again by naming it in
.Ic enable
or in
.Ev FI_PROVIDER ,
unless it is final.
)"},
    {"providers.rank[].match", R"(.Li match: {}
matches everything.
)"},
    {"providers.rank[].match.subnet", R"(The bits beyond the prefix must be 0.
)"},
    {"providers.rank[].rank", R"(Network providers usually have 500.
)"},
    {"stacks", R"(The last element is the one provider, and above it stand layers and hooks.
The same layer or hook must not stand twice in a row.
A layer that takes several providers may be the last element instead: it stands
.Ic over
branches, and each of these ends with a provider of its own.
)"},
    {"stacks.LABEL[].layer", R"(rxm makes reliable datagrams of connections.
)"},
    {"stacks.LABEL[].over", R"(For example
.Pp
.Dl fast:
.Dl - layer: link
.Dl "  over:"
.Dl "  - [{provider: shm}]"
.Dl "  - [{layer: rxm}, {provider: tcp}]"
.Pp
is link over shm and over rxm over tcp.
The layer asks the branches in this order.
A layer states how many it takes, 16 at most
.Pq Li weft plugin list -v ;
with one branch the stack is the same as without
.Ic over .
Nothing may stand below the layer, no layer may stand beneath itself, and no two branches may be the
same.
A hook in a branch sees the objects of that branch only.
The name of such a stack has the branches in brackets, with a plus between them:
.Li (shm+tcp;ofi_rxm);link .
)"},
    {"stacks.LABEL[].params", R"(Stronger than
.Ic params
below, unless a weaker source than that of the stack has made the parameter final.
)"},
    {"stacks.LABEL[].on_unavailable", R"(The stack is not used
.Pq Li fail ,
or it is built without the element
.Pq Li skip .
A stack cannot skip its provider, nor a layer that stands over branches.
Where the provider of a branch has
.Li skip ,
the stack is built without that branch, if the layer takes so few.
)"},
    {"use", R"(They may be defined in other files.
An empty list replaces the list of weaker sources; it disables nothing
.Pq use Ic providers No for that .
A stack that is defined and not listed here is offered to programs that ask for its label, in
.Ev FI_PROVIDER
or in the
.Va prov_name
of their hints.
One such stack is built in:
.Li sockets ,
for programs that still ask for that name: it is
.Li tcp ,
.Li udp
for datagrams, and
.Li tcp;ofi_rxm
for programs that ask for
.Dv FI_ATOMIC .
Its progress is automatic unless they ask for another kind.
What none of the three has is not offered by that name either: atomics, tags and triggers of connected endpoints, tags of datagrams.
A fabric is one of the three: that of the
.Vt fi_info
whose attributes open it.
)"},
    {"local", R"(With
.Li shm
each stack that has
.Dv FI_EP_RDM
is offered with the layer link above it
.Pq Xr weft-link 7 :
peers of the same user on this host are reached through memory, and all others as before.
Programs see the names that they always saw:
.Li tcp
is
.Li (shm+tcp);link ,
with
.Va prov_name ,
fabric and domain of
.Li tcp ,
and a
.Va prov_version
of its own
.Pq Li 0.1 ,
by which
.Fn fi_fabric
tells the two apart.
Where link has less than the stack by itself, both are offered, link first
.Pq each opens in a fabric of its own ;
where it has not what a program asks for
.Po connections, datagrams, triggered operations, scalable endpoints, memory of devices Pc ,
or refuses the stack, or is not installed, the stack by itself is.
.Li weft why
tells which, and why.
.Pp
Link stands directly above what makes the endpoints of
.Dv FI_EP_RDM .
Layers and hooks above that, also those of
.Ev FI_HOOK ,
serve the program and stay above link, so they see the messages of both ways;
those beneath are the network's:
.Li [{hook: trace}, {layer: rxm}, {hook: profile}, {provider: tcp}]
becomes trace above link, and link over shm and over rxm, profile and tcp.
A stack that has link or shm already stays as it is.
.Pp
Rules of
.Ic providers
see the stack with link as the one whose name it has.
.Ic disable
of shm or link turns it off, and so does
.Li FI_PROVIDER=^shm ;
.Ic enable
need not name shm, unless it is final.
Nobody gets it unasked, because link refuses what no hint asks for: an address vector with a name, a
counter of bytes, and a domain that is opened by another answer than its fabric.
)"},
    {"params", R"(A key is made of a\(enz, 0\(en9 and
.Ql _ .
A value is text, a number, a boolean, a size such as
.Li 16K
.Pq K, M and G are powers of 1024 ,
or a list; the unit determines which.
.Li weft plugin list
and
.Li fi_info -e
print the parameters of the installed units.
A list is written as
.Li [a, b]
or as
.Li \(dqa,b\(dq ;
an entry must not have a comma in it.
)"},
    {"plugins.unprobed", R"(A probe tries a library out in a process of its own.
)"},
    {"plugins.probe_budget_ms", R"(A program that waits longer for an answer of a plugin in
.Fn fi_getinfo
is told which one it waits for, on stderr.
)"},
    {"control",
     R"(They are attached through a socket, which is there while the process has a fabric open
.Pq Xr weft 1 , Ic hook .
)"},
    {"final",
     R"(A source that tries to change a final key gets a warning, and its value is not used.
So does an
.Ic enable
that names what a final
.Ic disable
forbids.
)"},
};

constexpr bool is_known(std::string_view path) {
  for (const PolicyKey &key : kPolicyKeys)
    if (key.path == path) return true;
  return false;
}
constexpr bool are_known() {
  for (const Text &text : kTexts)
    if (!is_known(text.path)) return false;
  return true;
}
static_assert(are_known());

}  // namespace

std::string_view manual_text(std::string_view path) {
  for (const Text &text : kTexts)
    if (text.path == path) return text.text;
  return {};
}

}  // namespace weft::config
