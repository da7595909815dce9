// SPDX-License-Identifier: BSD-2-Clause
// An unconnected endpoint (FI_EP_RDM): a listening socket whose address is the endpoint's name, and
// a stream to every peer in use (peer.h).
//
// Example:
//    inline Result<fid_ep *> open(Domain &domain, const fi_info &info) {
//      WEFT_TRY(auto *const endpoint, UnconnectedEndpoint::open(domain, info, nullptr));
//      return endpoint->c();  // the application binds, enables and closes it
//    }
//    // What fi_tsend() becomes, after its arguments were checked.
//    inline ssize_t send(UnconnectedEndpoint &endpoint, const iovec &message, fi_addr_t dest,
//                        uint64_t tag) {
//      sdk::Guard guard(endpoint.lock());
//      return endpoint.start(sdk::SendRequest{.tagged = true,
//                                             .iov = &message,
//                                             .count = 1,
//                                             .length = message.iov_len,
//                                             .dest = dest,
//                                             .tag = tag});
//    }
//
// Flow control: a message without a posted receive is saved within the limits (max_saved_per_peer,
// max_saved). Beyond them its stream is not read until a receive is posted. Tagged messages above
// kSentUnasked are only announced, to peers that know announcements, and take no memory at the
// receiver. If the peer has said that it has room, messages up to max_saved_size go out at once.
// Beyond max_connections the stream that was idle for longest is closed.
#ifndef WEFT_PLUGINS_TCP_UNCONNECTED_ENDPOINT_H
#define WEFT_PLUGINS_TCP_UNCONNECTED_ENDPOINT_H

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <weft/sdk/addresses/av.h>
#include <weft/sdk/memory/index_table.h>
#include <weft/sdk/objects/fid.h>
#include <weft/sdk/objects/ops.h>
#include <weft/sdk/objects/rdm_endpoint.h>
#include <weft/sdk/peer/place.h>
#include <weft/sdk/progress/exit_duty.h>
#include <weft/sdk/transfers/transfer.h>

#include <compare>
#include <memory>
#include <unordered_map>
#include <vector>

#include "plugins/tcp/acceptor.h"
#include "plugins/tcp/domain.h"
#include "plugins/tcp/peer.h"

namespace weft::tcp {

inline constexpr uint64_t kRdmTransmitCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_SEND | FI_READ |
                                             FI_WRITE | FI_RMA_PMEM | FI_TRIGGER | FI_FENCE;
inline constexpr uint64_t kRdmReceiveCaps = FI_MSG | FI_TAGGED | FI_RMA | FI_RECV | FI_REMOTE_READ |
                                            FI_REMOTE_WRITE | FI_MULTI_RECV | FI_RMA_EVENT |
                                            FI_DIRECTED_RECV | FI_SOURCE | FI_SOURCE_ERR |
                                            FI_AV_USER_ID | FI_RMA_PMEM | FI_PEER | FI_TRIGGER;

inline constexpr size_t kRdmMinMultiRecv = 16384;  // default of FI_OPT_MIN_MULTI_RECV, bytes
inline constexpr uint64_t kUrgentExtra = 64 << 20;
// Bytes of a tagged message that is sent without an announcement: always; and if the peer has room
// for long messages. The latter also limits the sum of those that are queued.
inline constexpr uint64_t kSentUnasked = 64 << 10, kLongest = 8 << 20;

class UnconnectedEndpoint final : public sdk::Object<UnconnectedEndpoint, fid_ep>,
                                  public sdk::RdmEndpoint,
                                  public sdk::TransferOps<UnconnectedEndpoint>,
                                  public sdk::AvUser,
                                  private sdk::ReceiverSink,
                                  private Acceptor::Client,
                                  private sdk::PlaceOwners::Peers,
                                  private sdk::ExitDuty,
                                  private sdk::Handler {
 public:
  static Result<UnconnectedEndpoint *> open(Domain &domain, const fi_info &info, void *context);

  // ---- for TransferOps ----
  ssize_t start(const sdk::RecvRequest &request) {
    const ssize_t rc = receiver().post(request);
    if (rc == 0 && !stalled_.empty()) resume_stalled();
    return rc;
  }
  ssize_t start(const sdk::SendRequest &request);
  ssize_t start(const sdk::RmaRequest &request);
  ssize_t start(const sdk::AtomicRequest &) { return -FI_EOPNOTSUPP; }
  template <class Fid>
  void set_tables(Fid &fid) const {
    sdk::fill_tables(fid);
    if (!(caps() & FI_RMA)) fid.c()->rma = sdk::c_table(sdk::rma_ops<Nothing>());
    if (!(caps() & FI_TAGGED)) fid.c()->tagged = sdk::c_table(sdk::tagged_ops<Nothing>());
    fid.c()->atomic = sdk::c_table(sdk::atomic_ops<Nothing>());
  }

  // ---- fi_ops_cm ----
  int setname(void *addr, size_t len);
  int getname(void *addr, size_t *len);

  // ---- fi_ops_ep ----
  ssize_t cancel(void *context);
  ssize_t tx_size_left();

  // ---- fi_ops ----
  int close();
  int bind(struct fid *fid, uint64_t flags) { return bind_object(fid, flags); }
  int control(int command, void *arg);

  // ---- AvUser ----
  void on_av_removed(uint32_t index) override;
  void on_av_inserted(uint32_t index, const sdk::Address &address) override;

  // ---- for peers and their streams ----
  Domain &domain() { return tcp_domain_; }
  sdk::Engine &engine() { return engine_; }
  bool announces() const { return announces_; }
  const Settings &settings() const;
  Counters &counters();
  sdk::Pool<Operation> &control_ops() { return control_ops_; }
  const sdk::SockAddr &name() const { return acceptor_.name(); }
  uint8_t dscp() const { return acceptor_.dscp(); }  // of its traffic class
  RdmHello hello(uint16_t port) const;
  const Keys &keys() const { return keys_; }
  void finish(RdmOperation &op, int error);
  void lost(uint64_t flags, int error);
  // A receive has ended. Whether the application is about to hear of the end of an operation, or
  // just has.
  void note_end() { ended_at_ = engine_.rounds(); }
  bool has_news() const { return engine_.rounds() - ended_at_ <= 2; }
  // Memory for a message without a receive; null: over the limits, or no memory. `urgent`: this
  // side waits for data behind it, or had promised room for it, so the limits are higher by
  // kUrgentExtra.
  Saved *save(Peer &peer, uint64_t payload, bool urgent);
  bool make_room(Saved &announced);  // memory for its bytes; false as above
  // Whether the peer may send long messages without announcements. There must be room for all that
  // it can send before it reads that it may no longer. Until its stream ends such a peer has a
  // share of max_saved, max_saved_per_peer bytes.
  bool may_send_long(const Peer &peer, bool could, bool has_share) const;
  void take_share() { ++shares_; }
  void count_arrived(Saved &saved, uint64_t bytes);
  // For more bytes of the peer's messages. Peers outside the address vector get half of max_saved
  // at most.
  bool has_room(const Peer &peer, uint64_t extra) const;
  void release(Saved *saved);
  void stalled(PeerStream &stream) { stalled_.push_back(&stream); }
  // An operation waits for its peer, or for room in a socket.
  void waits() { owe(); }
  void look_again() { engine_.mark_dirty(*this); }  // at stalled streams
  PeerStream *make_stream(Peer &peer, int fd, const Terms &terms);
  void bury(PeerStream &stream);
  void check(Peer &peer);  // frees it later, if it is idle
  // The process that listens at the peer's address has answered a request of ours.
  void on_answer_of(const Peer &peer, uint8_t last_place);
  bool asks_for_places(const Peer &peer) const { return owners_.waits(peer.source, sdk::now_ns()); }
  void forget_places(const Peer &peer) {
    if (peer.place == 0) owners_.ended(peer.source);
  }
  void drop_region(const sdk::Mr &mr);

  // ---- ReceiverSink ----
  void deliver(sdk::Unexpected &message, sdk::Receive &receive) override;
  void discard(sdk::Unexpected &message) override;
  int read_first(sdk::Unexpected &message, void *to, size_t n) override;
  std::string source_address(const sdk::Message &message) override;
  void on_shared_receive() override {
    if (!stalled_.empty()) resume_stalled();
  }

 private:
  bool copy_in(void *to, const void *from, size_t length) const;
  UnconnectedEndpoint(Domain &domain, const fi_info &info, void *context);
  ~UnconnectedEndpoint() = default;

  Result<void> enable();
  Result<void> bind_name();
  Peer *peer_at(uint32_t index);
  Peer *find_or_add(const sdk::SockAddr &address, uint32_t index);
  Peer *incoming_peer(const sdk::SockAddr &address, unsigned place, bool believed);
  Peer *requester(const sdk::SockAddr &remote, unsigned place, bool believed);
  sdk::PlaceOwners::Claim judge(const sdk::SockAddr &remote, unsigned place);
  void judge_claims(const sdk::SockAddr &first);
  void reject(int fd, std::span<const uint8_t> reason);
  sdk::SockAddr address_at(int fd) const;
  sdk::PeerLink::Decision decide(Peer &peer, std::strong_ordering order, const RdmHello &hello);
  void accept(int fd, const ConnectReader &request, const RdmHello &hello, Peer &peer, bool second);
  RdmOperation *take_operation(uint64_t flags);
  void give(RdmOperation &op);
  RdmOperation *make_room(uint64_t flags);
  bool may_save(const Peer &peer, uint64_t bytes, uint64_t extra) const;
  void count_claimed(Saved &saved, uint64_t bytes);
  void set_source(Peer &peer, uint32_t source);
  PeerStream *longest_idle() const;
  void make_room_for_a_stranger();
  void look_at_streams();
  template <class F>  // bool(const PeerStream &)
  PeerStream *first_stranger(F may_go) const;
  void close_idle(PeerStream &stream);
  void resume_stalled();
  void linger();
  void clean_up();

  // ExitDuty
  bool owes(bool exits) override;

  // Acceptor::Client
  void on_request(int fd, const ConnectReader &request) override;
  void on_accept_failure(int, const std::string &) override {}  // logged already
  // PlaceOwners::Peers
  uint32_t index_of_context(const sdk::Address &address, unsigned place) override {
    return av()->find_context(address, place);
  }
  bool is_connected(uint32_t entry) override;
  void ask_for_places(uint32_t entry, const sdk::Address &first) override;
  void name_context(const sdk::Address &address, unsigned place, uint32_t index) override;
  void drop_context(const sdk::Address &address, unsigned place) override;
  // Handler, without a descriptor
  void on_event(uint32_t) override {}
  void on_flush() override;

  Domain &tcp_domain_;
  sdk::Engine &engine_;
  const uint32_t addr_format_;
  const uint32_t process_;
  sdk::SockAddr local_;
  Keys keys_;
  Acceptor acceptor_;
  sdk::Pool<RdmOperation> tx_ops_;
  sdk::Pool<Operation> control_ops_;
  const bool names_sources_;
  const bool announces_;  // long tagged messages
  sdk::OrderKeeper keeper_;
  bool has_places_ = false;  // some peers are contexts of scalable endpoints
  uint32_t next_unnamed_ = 0;
  uint64_t ended_at_ = 0;  // in engine rounds: an operation of the application
  // "Unnamed" peers are not in the address vector.
  uint64_t saved_bytes_ = 0;    // arrived bytes of saved messages
  uint64_t unnamed_bytes_ = 0;  // of these, from unnamed peers
  uint64_t shares_ = 0;         // of max_saved, given to peers: may_send_long()
  size_t unnamed_streams_ = 0, max_unnamed_ = 0;
  uint64_t looked_at_ = 0;  // look_at_streams(); ns
  bool refusal_told_ = false;
  sdk::IndexTable<Peer> table_;
  std::unordered_map<sdk::SockAddr, std::unique_ptr<Peer>, sdk::SockAddrHash> peers_;
  sdk::PlaceOwners owners_{*this};
  std::vector<PeerStream *> streams_;
  std::vector<PeerStream *> stalled_;
  std::vector<std::unique_ptr<PeerStream>> buried_;  // ended, perhaps still on the stack
  std::vector<Peer *> idle_;                         // may be freed
};

}  // namespace weft::tcp

#endif
