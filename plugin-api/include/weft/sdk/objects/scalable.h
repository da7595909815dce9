// SPDX-License-Identifier: BSD-2-Clause
// ScalableEndpoint: fi_scalable_ep (fi_endpoint.3) for every provider and layer with unconnected
// endpoints. Each transmit and each receive context is a plain endpoint of the provider, which
// sends only or receives only, in a lane: a domain behind the application's, with an engine, and so
// a lock and memory, of its own. Transmit context i and receive context i are in lane i: mostly one
// thread uses both, and one queue for both.
//
// Example:
//    #include <weft/sdk/objects/ops.h>
//    class Domain;
//    struct Fabric {};
//    class Endpoint final : public Object<Endpoint, fid_ep> {
//     public:
//      // Its class is endpoint_class(domain.shared()), its parent endpoint_parent(...).
//      static weft::Result<Endpoint *> open(Domain &domain, const fi_info &info, void *context);
//    };
//    class Domain final : public Object<Domain, fid_domain>,
//                         public DomainCore,
//                         public ScalableOps<Domain, Endpoint> {  // fi_scalable_ep
//     public:
//      static weft::Result<Domain *> open(Fabric &fabric, const fi_info &info, void *context);
//      Fabric &fabric();
//      int close();  // first close_lanes()
//    };
//
// What the application binds to a context and to the endpoint belongs to the application's domain:
// - A completion queue or a counter comes to the lane with the first context that reports to it
//   (Cq::come_to), so that its readers take the lane's lock alone.
// - A lane has a view of the address vector (Av::open_view) and borrows regions (mr.h).
//
// Addresses: receive context i of an endpoint with the port p has the port p + i, transmit context
// j the port p + (number of receive contexts) + j. So the one address that is in a peer's address
// vector leads to all contexts, for peers that know nothing of contexts to the first one, and a
// provider needs no place in its protocol to name the context that it asks for. Only the sender of
// a message says which context it is (Lane::place), so that its source is the endpoint; its peer
// asks the first context whether there is such a one (peer/place.h). All ports are taken together,
// when the first context is opened or the name is asked for. The first one is taken again when the
// application closes its context, as peers go on asking there.
//
// Not for connected endpoints, nor for devices that have contexts by themselves.
#ifndef WEFT_SDK_OBJECTS_SCALABLE_H
#define WEFT_SDK_OBJECTS_SCALABLE_H

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <weft/sdk/addresses/address.h>
#include <weft/sdk/objects/domain.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/unit/info_list.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace weft::sdk {

class Av;

// Of each kind; together not more than Av::kContexts.
inline constexpr size_t kMaxContexts = 16;

// The context that a domain's next endpoint is, or that an endpoint is.
struct Lane {
  size_t fclass = 0;                      // FI_CLASS_TX_CTX, FI_CLASS_RX_CTX
  struct fid *parent = nullptr;           // the scalable endpoint
  uint64_t number = 0;                    // its number (endpoint_number.h)
  uint8_t place = 0;                      // among the ports
  uint8_t last_place = 0;                 // of the endpoint's contexts
  mutable std::atomic<bool> open{false};  // the context is
  // What the end of an open context calls; null: it is not open any more, and that is all.
  void (*closed)(const Lane &lane) = nullptr;
};

// What an endpoint that is opened now in a domain is, and what it is opened from.
inline size_t endpoint_class(const DomainContext &domain) {
  return domain.lane != nullptr ? domain.lane->fclass : size_t(FI_CLASS_EP);
}
inline struct fid *endpoint_parent(const DomainContext &domain) {
  return domain.lane != nullptr ? domain.lane->parent : domain.fid;
}

// Opens what a scalable endpoint is made of. `domain` of a lane is closed by fi_close().
class LaneMaker {
 public:
  struct Made {
    fid_domain *domain = nullptr;
    DomainContext *shared = nullptr;
  };
  virtual Result<Made> make_domain(const fi_info &info) = 0;
  virtual Result<fid_ep *> make_endpoint(const Made &lane, const fi_info &info) = 0;

 protected:
  ~LaneMaker() = default;
};

// The lanes of a domain that no context uses, kept because queues may still live under their locks.
class Lanes {
 public:
  void give(const LaneMaker::Made &lane);
  LaneMaker::Made take();  // without a domain: there is none
  void close();            // all; before their origin closes

 private:
  std::mutex mutex_;
  std::vector<LaneMaker::Made> idle_;
};

class ScalableEndpoint final : public Object<ScalableEndpoint, fid_ep> {
 public:
  static Result<ScalableEndpoint *> open(DomainContext &domain, Lanes &lanes,
                                         std::unique_ptr<LaneMaker, void (*)(LaneMaker *)> maker,
                                         const fi_info &info, void *context);

  const fi_info *opened_with() const { return &info(); }
  uint32_t api_version() const { return domain_.api_version; }

  // ---- fi_ops_ep ----
  int tx_ctx(int index, struct fi_tx_attr *attr, struct fid_ep **ep, void *context);
  int rx_ctx(int index, struct fi_rx_attr *attr, struct fid_ep **ep, void *context);
  int getopt(int level, int name, void *value, size_t *length);

  // ---- fi_ops_cm ----
  int setname(void *addr, size_t len);
  int getname(void *addr, size_t *len);

  // ---- fi_ops ----
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);  // FI_ENABLE
  int close();
  void close_copies();  // ops.h

 private:
  struct Part;  // a lane, and what it has of the application's objects
  struct Context;
  using Maker = std::unique_ptr<LaneMaker, void (*)(LaneMaker *)>;
  ScalableEndpoint(DomainContext &domain, Lanes &lanes, Maker maker, InfoList info, void *context);
  ~ScalableEndpoint();

  const fi_info &info() const { return *info_.front(); }
  Result<void> make_contexts();
  Result<Part *> part(size_t index);
  Result<void> make_own(Context &context);
  Result<void> make_endpoint(Context &context, const fi_info &info);
  static void close_endpoint(Context &context);
  static void first_closed(const Lane &lane);
  Result<InfoList> info_of(const Context &context) const;
  Result<void> take_ports();
  Result<void> take_port(Context &context, const Address &first);
  Result<void> bind_vector(Av &av);
  Result<void> open_view(Part &part);
  Result<void> give_vector(Context &context);
  Result<fid_ep *> open_context(size_t place, const fi_info &info, bool fresh, void *context);
  int opened(Result<fid_ep *> context, struct fid_ep **ep);

  DomainContext &domain_;
  Lanes &lanes_;
  const Maker maker_;
  const InfoList info_;
  const uint64_t number_;
  const size_t receives_;  // contexts; those that transmit are behind them
  std::mutex mutex_;       // of the calls; before all other locks
  Address local_;
  bool has_ports_ = false, enabled_ = false;
  Av *av_ = nullptr;
  std::vector<std::unique_ptr<Part>> parts_;        // by the index of their contexts
  std::vector<std::unique_ptr<Context>> contexts_;  // by place
};

// fi_scalable_ep of a domain class.
template <class D, class Endpoint>
class ScalableOps {
 public:
  int scalable_ep(struct fi_info *info, struct fid_ep **ep, void *context) {
    if (info == nullptr || ep == nullptr) return -FI_EINVAL;
    std::unique_ptr<LaneMaker, void (*)(LaneMaker *)> maker(
        new Maker(self()), [](LaneMaker *made) { delete static_cast<Maker *>(made); });
    return finish(self().instance(), FI_LOG_EP_CTRL,
                  ScalableEndpoint::open(self().shared(), lanes_, std::move(maker), *info, context),
                  ep);
  }

 protected:
  ~ScalableOps() = default;
  void close_lanes() { lanes_.close(); }

 private:
  class Maker final : public LaneMaker {
   public:
    explicit Maker(D &origin) : origin_(origin) {}
    Result<Made> make_domain(const fi_info &info) override {
      WEFT_TRY(D *const lane, D::open(origin_.fabric(), info, nullptr));
      if (const Result<void> joined = lane->join(origin_); !joined) {
        fi_close(lane->base());
        return tl::unexpected(joined.error());
      }
      return Made{lane->c(), &lane->shared()};
    }
    Result<fid_ep *> make_endpoint(const Made &lane, const fi_info &info) override {
      WEFT_TRY(auto *const endpoint, Endpoint::open(*D::from(lane.domain), info, nullptr));
      return endpoint->c();
    }

   private:
    D &origin_;
  };

  D &self() { return static_cast<D &>(*this); }

  Lanes lanes_;
};

}  // namespace weft::sdk

#endif
