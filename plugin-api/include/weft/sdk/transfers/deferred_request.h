// SPDX-License-Identifier: BSD-2-Clause
// DeferredTransfer: a request that starts later (deferred.h). It has copies of the vectors and
// descriptors, because those of a call are the caller's again when it returns; after FI_INJECT of
// the bytes, too.
//
// Example:
//    // What becomes of a call with FI_TRIGGER.
//    template <class Endpoint>
//    ssize_t defer(Endpoint &endpoint, DeferredQueue &queue, const SendRequest &request,
//                  const Deferred::Origin &origin) {
//      return queue.add(
//          std::make_unique<DeferredTransfer<Endpoint, SendRequest>>(endpoint, request, origin));
//    }
//
// Not for receives of shared contexts.
#ifndef WEFT_SDK_TRANSFERS_DEFERRED_REQUEST_H
#define WEFT_SDK_TRANSFERS_DEFERRED_REQUEST_H

#include <weft/sdk/objects/endpoint.h>
#include <weft/sdk/transfers/deferred.h>
#include <weft/sdk/transfers/transfer_requests.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <variant>

namespace weft::sdk {

// How a domain hands work to an endpoint: fi_control() with kQueueDeferred and a DeferredCall.
inline constexpr int kQueueDeferred = -0x77656675;
struct DeferredCall {
  const DomainContext *domain = nullptr;
  Deferred::Origin origin;
  std::variant<SendRequest, RmaRequest, AtomicRequest, RecvRequest> request;
};

// At most kIovLimit of something.
template <class T>
struct KeptArray {
  T items[kIovLimit];
  T *keep(const T *from, size_t count) {
    if (from == nullptr) return nullptr;
    std::copy_n(from, count, items);
    return items;
  }
};

// A copy of a request. `owns`: of the bytes that it sends, too.
template <class Request>
struct Kept {  // SendRequest, RmaRequest
  Kept(const Request &from, bool owns) : request(from) {
    request.iov = iov.keep(from.iov, from.count);
    request.desc = desc.keep(from.desc, from.count);
    if constexpr (requires { from.rma; }) request.rma = rma.keep(from.rma, from.rma_count);
    if (!owns || from.length == 0) return;
    bytes = std::make_unique<char[]>(from.length);
    gather(bytes.get(), from.iov, from.count, 0, from.length);
    iov.items[0] = {bytes.get(), size_t(from.length)};
    request.desc = nullptr;
    request.count = 1;
  }
  Request request;
  KeptArray<iovec> iov;
  KeptArray<void *> desc;
  KeptArray<fi_rma_iov> rma;
  std::unique_ptr<char[]> bytes;
};

template <>
struct Kept<RecvRequest> {
  Kept(const RecvRequest &from, bool) : request(from) {
    request.iov = iov.keep(from.iov, from.count);
    request.desc = desc.keep(from.desc, from.count);
  }
  RecvRequest request;
  KeptArray<iovec> iov;
  KeptArray<void *> desc;
};

template <>
struct Kept<AtomicRequest> {
  Kept(const AtomicRequest &from, bool owns) : request(from) {
    const auto keep = [](Values &values, auto &ioc, void *const *&descs, size_t &count, bool used) {
      if (!used) count = 0;
      ioc = values.ioc.keep(used ? ioc : nullptr, count);
      descs = values.desc.keep(used ? descs : nullptr, count);
    };
    keep(operands, request.operands, request.operand_desc, request.operand_count,
         from.op != FI_ATOMIC_READ);
    keep(compares, request.compares, request.compare_desc, request.compare_count,
         from.kind == AtomicKind::kCompare);
    keep(results, request.results, request.result_desc, request.result_count,
         from.kind != AtomicKind::kWrite);
    request.rma = rma.keep(from.rma, from.rma_count);
    if (!owns) return;
    own(operands, request.operands, request.operand_desc, request.operand_count);
    own(compares, request.compares, request.compare_desc, request.compare_count);
  }
  struct Values {
    KeptArray<fi_ioc> ioc;
    KeptArray<void *> desc;
    std::unique_ptr<char[]> bytes;
  };
  AtomicRequest request;
  Values operands, compares, results;
  KeptArray<fi_rma_ioc> rma;

 private:
  void own(Values &values, const fi_ioc *ioc, void *const *&descs, size_t &count) {
    if (count == 0) return;
    const size_t size = datatype_size(request.datatype), all = size_t(request.elements) * size;
    values.bytes = std::make_unique<char[]>(all);
    ioc_gather(values.bytes.get(), all, ioc, count, size);
    values.ioc.items[0] = {values.bytes.get(), size_t(request.elements)};
    descs = nullptr;
    count = 1;
  }
};

// `Endpoint` has the start() that TransferOps needs, and is an EndpointCore.
template <class Endpoint, class Request>
class DeferredTransfer final : public Deferred {
 public:
  DeferredTransfer(Endpoint &endpoint, const Request &request, const Origin &origin)
      : Deferred(origin),
        endpoint_(endpoint),
        kept_(request, !is_work() && (request.flags & FI_INJECT) != 0) {
    kept_.request.flags &= ~uint64_t(FI_MORE);  // nobody knows what follows it
    if (!is_work()) return;
    kept_.request.flags |= kDeferred;
    kept_.request.context = static_cast<Deferred *>(this);
  }

 private:
  ssize_t start() override { return endpoint_.start(std::as_const(kept_.request)); }
  void fail(int err) override {
    endpoint_.fail_transfer(kept_.request.context, completion_flags(kept_.request), err);
  }

  Endpoint &endpoint_;
  Kept<Request> kept_;
};

}  // namespace weft::sdk

#endif
