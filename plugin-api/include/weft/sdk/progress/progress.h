// SPDX-License-Identifier: BSD-2-Clause
// Threads and progress of domains: which progress a software provider or layer offers (fi_getinfo),
// and whether a domain needs a thread and a lock (fi_domain).
//
// Example:
//    #include <weft/sdk/progress/engine.h>
//    void offer(fi_domain_attr &domain, const fi_domain_attr &hints) {
//      domain.threading = FI_THREAD_SAFE;
//      domain.data_progress = offered_progress(hints.data_progress);
//    }
//    void open(const fi_info &info) {
//      Engine engine(needs_lock(info));
//      if (needs_thread(info) && !engine.start_thread()) return;
//    }
//
// Not for making progress: engine.h.
#ifndef WEFT_SDK_PROGRESS_PROGRESS_H
#define WEFT_SDK_PROGRESS_PROGRESS_H

#include <rdma/fabric.h>

namespace weft::sdk {

// Manual progress costs nothing; the thread of automatic progress is for applications that ask.
inline enum fi_progress offered_progress(enum fi_progress asked) {
  return asked == FI_PROGRESS_AUTO ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
}

// A domain opened with `info` has a thread that makes its progress.
inline bool needs_thread(const fi_info &info) {
  return info.domain_attr->data_progress == FI_PROGRESS_AUTO ||
         info.domain_attr->control_progress == FI_PROGRESS_AUTO;
}

// More than one thread may be in it at a time.
inline bool needs_lock(const fi_info &info) {
  return needs_thread(info) || info.domain_attr->threading != FI_THREAD_DOMAIN;
}

}  // namespace weft::sdk

#endif
