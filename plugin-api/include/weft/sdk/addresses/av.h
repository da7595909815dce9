// SPDX-License-Identifier: BSD-2-Clause
// Av: address vectors (fi_av.3) of any format, compact: a peer that was only inserted costs its
// address.
//
// Example:
//    int av_open(DomainContext &domain, fi_av_attr *attr, fid_av **av, void *context) {
//      return open_av(domain, FI_SOCKADDR_IN, attr, av, context, "eth0");
//    }
//    void use(Av &av, fi_addr_t dest, const Address &source) {
//      std::optional<Address> peer = av.address(av.index_of(dest));  // none: nothing inserted
//      uint32_t from = av.find(source);                               // Av::kNone: not inserted
//      uint64_t context = av.rx_context_of(dest);                     // 0 without rx_ctx_bits
//      (void)peer, (void)from, (void)context;
//    }
//
// An fi_addr_t is the index of its entry, in either type of vector. Indices are dense and stable; a
// removed one is used again, the lowest first. Memory per peer: 8 bytes for IPv4, 20 for IPv6, and
// the size of the format for others; 16 more after the first find(), and 8 more with user ids.
// Endpoints keep their own state of peers. The vector tells them (AvUser) when a peer is removed.
//
// FI_SOCKADDR, FI_SOCKADDR_IP and FI_ADDR_STR stand for several formats. A vector takes those that
// its provider can send to: `native`. It is FI_SOCKADDR_IP (IPv4 and IPv6) unless the provider says
// otherwise.
//
// User ids (fi_av.3, USER IDENTIFIERS FOR ADDRESSES) replace the index in completions, and nowhere
// else. They are for domains opened with FI_AV_USER_ID. They belong to this process alone, also in
// a shared vector.
//
// Authorization keys (FI_AV_AUTH_KEY): in a domain with keys, addresses are inserted for one of the
// vector's keys, with FI_AUTH_KEY. What is in the vector is AvKeys::with_key() of the address. The
// fi_addr_t of a key is kKeyBase plus a number; no entry has such an index.
//
// A receive context of a scalable endpoint is a peer by itself: the context that an fi_addr_t names
// (fi_rx_addr) has an index of its own, context_at(), without an entry. Its address is that of the
// entry with a port as much higher as the number of the context (scalable.h). Messages have the
// entry as their source, whatever context they come from: entry_of().
//
// The lanes of a scalable endpoint, which have locks of their own, each have a view of its vector
// (open_view): a vector that has those entries which the lane has used. It tells its users of all
// insertions.
//
// A vector with a name is shared between processes of one user through a file in their runtime
// folder (weft/runtime_dir.h). Each process keeps its own compact copy. The last process that has
// the file open removes it; what killed ones have left goes with the next vector that is made.
// Every call looks at the file, so every call may tell users about what another process did. Such
// vectors are FI_SHARED_AV: a provider reports it in its domain's capabilities, but where they have
// keys.
//
// The provider calls with the engine's lock held; the ops take it themselves. fi_av_insertsvc and
// fi_av_insertsym are for IP: names of other networks are not resolved (-FI_ENOSYS), but
// fi_av_insertsvc takes an FI_ADDR_STR of any format. Not for what a provider knows about a peer.
#ifndef WEFT_SDK_ADDRESSES_AV_H
#define WEFT_SDK_ADDRESSES_AV_H

#include <rdma/fi_domain.h>
#include <weft/sdk/addresses/address.h>
#include <weft/sdk/addresses/av_keys.h>
#include <weft/sdk/objects/cq.h>
#include <weft/sdk/objects/fid.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::sdk {

class AvFile;
class Eq;

// An endpoint that keeps state of peers by their index. Neither call may throw.
class AvUser {
 public:
  // The entry is about to go (it is still there). From now on its index may be given to another
  // peer.
  virtual void on_av_removed(uint32_t index) = 0;
  // A new entry. Only for users that asked for it (Av::add_user), which are not told of the entries
  // that are there already.
  virtual void on_av_inserted(uint32_t index, const Address &address) {
    (void)index;
    (void)address;
  }

 protected:
  ~AvUser() = default;
};

class Av final : public Object<Av, fid_av> {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr fi_addr_t kKeyBase = UINT64_C(1) << 60;
  // Indices of contexts; those of senders without an entry (Matcher::kFirstUnnamed) are higher.
  static constexpr uint32_t kContext = UINT32_C(1) << 30;
  static constexpr uint32_t kContexts = 32;
  static uint32_t entry_of(uint32_t index) {
    return index - kContext < kContext ? (index - kContext) / kContexts : index;
  }

  // Writes attr->type and attr->map_addr where the caller left the choice open. `domain_name`: the
  // domain that attr->name belongs to. `native`: see above; it matters where addr_format stands for
  // several formats.
  static Result<Av *> open(DomainContext &domain, uint32_t addr_format, fi_av_attr *attr,
                           void *context, std::string_view domain_name = {},
                           uint32_t native = FI_SOCKADDR_IP);

  // ---- for the provider ----
  // The entry of an fi_addr_t that an application passed in (bits of a receive context, where
  // fi_av_attr.rx_ctx_bits reserved some, are cut off); kNone: no such entry.
  uint32_t index_of(fi_addr_t address) {
    if (file_ != nullptr) refresh();
    address &= index_mask_;
    if (address < end_ && tag_of(uint32_t(address)) != kFree) return uint32_t(address);
    return origin_ != nullptr && fetch(address) ? uint32_t(address) : kNone;
  }
  // The receive context that an fi_addr_t names (fi_rx_addr): the bits that fi_av_attr.rx_ctx_bits
  // reserved, 0 without them.
  uint64_t rx_context_of(fi_addr_t address) const {
    return address & ~index_mask_ ? address >> rx_ctx_shift_ : 0;
  }
  std::optional<Address> address(uint32_t index) {
    if (file_ != nullptr) refresh();
    if (index < end_) {
      if (const auto there = get(index)) return there;
    }
    return address_elsewhere(index);
  }
  // The index of context `number` of an entry; the entry itself for 0. kNone: there is no such
  // context.
  uint32_t context_at(uint32_t entry, uint64_t number) {
    if (number == 0) return entry;
    if (number >= kContexts || entry >= kContext / kContexts) return kNone;
    has_contexts_ = true;
    return kContext + entry * kContexts + uint32_t(number);
  }
  // The index of a peer that says that it is context `number` of its endpoint.
  uint32_t find_context(const Address &address, unsigned number);
  // The index of an endpoint's address; kNone: not inserted. The first call builds a reverse index.
  // Inserted more than once: the lowest. In FI_ADDR_IB_UD the GID (or else LID) and QPN count.
  uint32_t find(const Address &address);
  // The peer that an fi_addr_t names, for callers that compare peers: as index_of(), but of an
  // address that was inserted more than once always what find() says. Programs do insert twice
  // (Open MPI for an intercommunicator), though fi_av.3 (NOTES) warns of it.
  uint32_t peer_of(fi_addr_t address) {
    uint32_t index = index_of(address);
    if (index == kNone) return index;
    if (!found_once_) index = find(*get(index));
    if (address <= index_mask_) [[likely]]
      return index;
    return context_at(index, rx_context_of(address));
  }
  // What completions report as the source: the index, or the user's id for it.
  fi_addr_t reported(uint32_t index) const {
    if (index >= end_) return reported_elsewhere(index);
    if (!has_ids_) return index;
    const Chunk *chunk = chunks_[index / kChunk];
    return chunk != nullptr && chunk->ids != nullptr ? chunk->ids[index % kChunk]
                                                     : without_id(index);
  }
  uint32_t capacity() const { return end_; }  // all indices are below
  size_t count() const { return count_; }     // entries

  // While there are users the vector is busy. `wants_inserts`: on_av_inserted() for each entry from
  // now on. What is there already is not told again: the user looks (count(), capacity(),
  // address()).
  void add_user(AvUser &user, bool wants_inserts = false);
  void remove_user(AvUser &user);
  std::atomic<size_t> users{0};  // bound endpoints that are no AvUser (yet), sets, views: also busy
  bool is_map() const { return map_; }
  // As it is now; and the fi_addr_t of an endpoint of this process, FI_ADDR_NOTAVAIL: nobody has
  // inserted it. For providers to which the vector is lent (fi_peer.3).
  void query(fi_av_attr &attr);
  fi_addr_t address_of(fid_ep &endpoint);
  // FI_SYMMETRIC: all processes have these addresses, at the same indices.
  bool is_symmetric() const { return symmetric_; }
  Engine &engine() { return *domain_.engine; }

  // A view for a lane of the vector's domain, which nobody else sees. Without a lock held, as
  // close_view().
  static Result<Av *> open_view(DomainContext &lane, Av &of);
  void close_view();

  // ---- keys ----
  bool has_keys() const { return domain_.av_keys != nullptr; }
  const std::vector<AvKey> &keys() const { return keys_; }
  // Of the fi_addr_t of a key: its place in keys(); kNone: there is no such key.
  uint32_t key_of(fi_addr_t handle) const;
  // What completions report of a sender that is known by its key only.
  fi_addr_t reported_key(uint32_t key) const { return keys_[key].id; }
  // An endpoint is enabled with all keys that are there: they cannot be removed. Each is released
  // when the endpoint ends.
  void hold_keys();
  void release_key(const AuthKey &bytes);

  // ---- fi_ops_av ----
  int insert(const void *addr, size_t count, fi_addr_t *fi_addr, uint64_t flags, void *context);
  int insertsvc(const char *node, const char *service, fi_addr_t *fi_addr, uint64_t flags,
                void *context);
  int insertsym(const char *node, size_t nodecnt, const char *service, size_t svccnt,
                fi_addr_t *fi_addr, uint64_t flags, void *context);
  int remove(fi_addr_t *fi_addr, size_t count, uint64_t flags);
  int lookup(fi_addr_t fi_addr, void *addr, size_t *addrlen);
  const char *straddr(const void *addr, char *buf, size_t *len);
  int set_user_id(fi_addr_t fi_addr, fi_addr_t user_id, uint64_t flags);
  int insert_auth_key(const void *auth_key, size_t auth_key_size, fi_addr_t *fi_addr,
                      uint64_t flags);
  int lookup_auth_key(fi_addr_t addr, void *auth_key, size_t *auth_key_size);
  int av_set(struct fi_av_set_attr *attr, struct fid_av_set **set, void *context);

  // ---- fi_ops ----
  int close();  // -FI_EBUSY while endpoints are bound
  int bind(struct fid *fid, uint64_t flags);
  int control(int command, void *arg);  // FI_EXPORT_FID

 private:
  // Entries stand in chunks, whose slots are as large as the largest of their entries needs: a
  // chunk that has to take a larger address is made anew. A slot's tag says what it holds: the
  // format. An IPv6 scope is a number into the chunk's own list, which a chunk this small cannot
  // overflow.
  static constexpr uint32_t kChunk = 128;
  enum Tag : uint8_t {
    kFree = 0,
    kV4 = FI_SOCKADDR_IN,
    kV6 = FI_SOCKADDR_IN6,
    kScope = 32,  // kScope + n: IPv6 with the chunk's scope n
  };
  struct Chunk {
    explicit Chunk(size_t size) : slot_size(uint8_t(size)) {}
    unsigned char *slot(uint32_t place) {
      return reinterpret_cast<unsigned char *>(this + 1) + place * slot_size;
    }
    const unsigned char *slot(uint32_t place) const {
      return reinterpret_cast<const unsigned char *>(this + 1) + place * slot_size;
    }
    const uint8_t slot_size;
    uint8_t used = 0;
    uint8_t low = 0;  // all slots below are in use
    std::vector<uint32_t> scopes;
    std::unique_ptr<fi_addr_t[]> ids;
    uint8_t tags[kChunk] = {};
    // Behind it: the slots.
  };
  class Reverse;

  Av(DomainContext &domain, uint32_t addr_format, uint32_t native, const fi_av_attr &attr,
     void *context, Av *origin = nullptr);
  ~Av();

  uint8_t tag_of(uint32_t index) const {
    const Chunk *chunk = chunks_[index / kChunk];
    return chunk != nullptr ? chunk->tags[index % kChunk] : uint8_t(kFree);
  }
  std::optional<Address> get(uint32_t index) const {
    const Chunk *chunk = chunks_[index / kChunk];
    if (chunk == nullptr) return std::nullopt;
    const uint32_t place = index % kChunk;
    const uint8_t tag = chunk->tags[place];
    if (tag == kV4) return Address::ipv4(chunk->slot(place));
    if (tag == kFree) return std::nullopt;
    if (tag == kV6 || tag >= kScope)
      return Address::ipv6(chunk->slot(place), tag == kV6 ? 0 : chunk->scopes[tag - kScope]);
    return unpack(*chunk, place);
  }
  static Address unpack(const Chunk &chunk, uint32_t place);  // of any format but those of IP

  bool holds(uint32_t index, const Address &address) const;
  static Chunk *make_chunk(size_t slot_size);
  static void destroy(Chunk *chunk);
  static uint8_t scope_tag(Chunk &chunk, uint32_t scope);
  Chunk *widen(uint32_t number, size_t slot_size);
  uint32_t lowest_free();
  void set(uint32_t index, const Address &address, const fi_addr_t *id = nullptr);
  void clear(uint32_t index);
  void take_out(uint32_t index);
  // The ids of an existing chunk.
  fi_addr_t *ids(uint32_t number);
  fi_addr_t without_id(uint32_t index) const { return only_ids_ ? FI_ADDR_NOTAVAIL : index; }
  int add(const Address &address, const fi_addr_t *id, uint32_t &index);

  Result<Address> check_peer(Result<Address> address) const;
  int check_insert(size_t count, const fi_addr_t *fi_addr, uint64_t flags, const void *context);
  template <class Next>
  int insert_all(size_t count, fi_addr_t *fi_addr, uint64_t flags, void *context, Next next);

  // Of views, and of contexts.
  struct Views;
  Result<void> share_file(Av &of);
  std::unique_lock<std::mutex> hold_views();
  bool fetch(fi_addr_t index);
  uint32_t find_in_origin(const Address &address);
  void tell_inserted(uint32_t index, const Address &address, bool once);
  void drop(uint32_t index);
  void rename(uint32_t index, fi_addr_t id);
  void tell_removed(AvUser &user, uint32_t index);
  std::optional<Address> address_elsewhere(uint32_t index);
  fi_addr_t reported_elsewhere(uint32_t index) const {
    return entry_of(index) != index ? reported(entry_of(index)) : FI_ADDR_NOTAVAIL;
  }

  // Of keys.
  uint32_t key_at(uint32_t index) const;
  Result<Address> with_key(const Result<Address> &address, fi_addr_t handle) const;
  Result<fi_addr_t> add_key(AvKeys::Bytes bytes);
  int remove_keys(const fi_addr_t *fi_addr, size_t count);
  int set_key_id(fi_addr_t handle, fi_addr_t id);

  // Of a shared vector.
  void refresh();
  Result<void> synchronize();
  Result<void> catch_up();
  Result<void> begin_writing();
  void end_writing();
  struct EndOfWriting {
    Av &av;
    ~EndOfWriting() { av.end_writing(); }
  };
  void give_up(const Error &error);

  DomainContext &domain_;
  const uint32_t addr_format_, native_;
  const bool map_;        // FI_AV_MAP
  const bool async_;      // FI_EVENT
  const bool read_only_;  // FI_READ
  const bool symmetric_;  // FI_SYMMETRIC
  const bool only_ids_;   // FI_AV_USER_ID: an entry without an id has no name in completions
  const fi_addr_t index_mask_;
  const unsigned rx_ctx_shift_;  // below 64
  Eq *eq_ = nullptr;
  std::vector<Chunk *> chunks_;  // null: no entry
  std::vector<uint64_t> room_;   // a bit for each chunk: it has a free slot
  size_t room_from_ = 0;         // all words below are 0
  uint32_t end_ = 0;
  size_t count_ = 0;
  bool has_ids_;
  std::unique_ptr<Reverse> reverse_;
  bool twice_ = false;       // reverse_ found an address that is there twice
  bool found_once_ = false;  // find() says of each entry that it is the first of its address
  bool has_contexts_ = false;
  Av *const origin_;              // of a view
  std::unique_ptr<Views> views_;  // of a vector that has some
  std::vector<std::pair<AvUser *, bool>> av_users_;
  std::vector<AvKey> keys_;  // by number
  std::unique_ptr<AvFile> file_;
  std::unique_ptr<AvFile> damaged_file_;
  bool catching_up_ = false;  // reading what other processes wrote
};

// fi_av_open of a domain: logs why not.
int open_av(DomainContext &domain, uint32_t addr_format, fi_av_attr *attr, fid_av **av,
            void *context, std::string_view domain_name = {}, uint32_t native = FI_SOCKADDR_IP);
// `native` for a vector beside objects that are opened with `info`: the format of its addresses,
// FI_SOCKADDR_IP for IPv4 and IPv6. `info` may have none, or addr_format may say it.
uint32_t native_format(const fi_info &info);

}  // namespace weft::sdk

#endif
