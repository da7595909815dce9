// SPDX-License-Identifier: BSD-2-Clause
// What an object lends to other providers (fi_export_fid; fi_peer.3): the owner's side. Who opens
// the peer's object with it (FI_PEER) drives the peer's progress, and closes what was exported
// (fi_close) when the peer's object is closed. Until then the owner's object is busy.
//
// Example:
//    #include <rdma/fabric.h>
//    #include <rdma/fi_errno.h>
//    int control(Cq &cq, int command, void *arg) {
//      return command == FI_EXPORT_FID ? export_fid(cq, arg) : -FI_ENOSYS;
//    }
//
// A peer may call in any thread, with locks of its own held: each call takes the engine's lock of
// the owner, and nothing that is behind it calls a peer (receives: lent_receives.h). An event queue
// is lent as it is, opened with FI_WRITE.
#ifndef WEFT_SDK_OBJECTS_EXPORTED_H
#define WEFT_SDK_OBJECTS_EXPORTED_H

namespace weft::sdk {

class Av;
class AvSet;
class Cntr;
class Cq;
class SharedReceiveContext;

// `request`: the fi_fid_export of fi_control. 0, or -FI_E...: -FI_ENOSYS if the object cannot be
// lent, because a device keeps its entries, or because it counts bytes.
int export_fid(Cq &cq, void *request);
int export_fid(Cntr &cntr, void *request);
int export_fid(Av &av, void *request);
int export_fid(AvSet &set, void *request);
int export_fid(SharedReceiveContext &context, void *request);

}  // namespace weft::sdk

#endif
