// SPDX-License-Identifier: BSD-2-Clause
#include "plugins/cxi/soft/frame.h"

#include <algorithm>

#include "plugins/cxi/soft/amo.h"

namespace weft::cxi {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint64_t kMagic = 0x69786374'66657701;  // 1, "weftcxi"
constexpr uint8_t kRestricted = 1, kFlush = 2, kPcie = 4;

// Reads or writes fields, one behind the other.
class Writer {
 public:
  explicit Writer(std::span<uint8_t> bytes) : at_(bytes.data()), end_(at_ + bytes.size()) {}
  ~Writer() { std::fill(at_, end_, uint8_t{0}); }
  template <class T>
  void put(T value) {
    for (size_t i = 0; i < sizeof value; ++i) *at_++ = uint8_t(uint64_t(value) >> 8 * i);
  }

 private:
  uint8_t *at_, *const end_;
};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : at_(bytes.data()) {}
  template <class T>
  T get() {
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{*at_++} << 8 * i;
    return T(value);
  }
  template <class T>
  void get(T &value) {
    value = get<T>();
  }

 private:
  const uint8_t *at_;
};

tl::expected<Frame, Refusal> refuse(Refusal refusal) {
  return tl::unexpected(refusal);
}

bool is_operation(uint8_t op) {
  return op >= uint8_t(Op::kPut) && op <= uint8_t(Op::kFetchAtomic);
}

// Who sends it: a process of the NIC that it comes from, or a rank. Short packets do not say.
bool is_own_name(const Packet &p) {
  return p.restricted || is_logical(p.initiator) || (p.initiator & kMatchAnyEp) == p.source;
}

tl::expected<Frame, Refusal> parse_packet(Reader in) {
  Frame frame;
  Packet &p = frame.packet;
  const auto op = in.get<uint8_t>();
  const auto flags = in.get<uint8_t>();
  in.get(p.vni);
  in.get(p.to.index);
  in.get(p.rendezvous_id);
  p.amo_op = AmoOp(in.get<uint8_t>());
  p.amo_type = AmoType(in.get<uint8_t>());
  p.cswap = Cswap(in.get<uint8_t>());
  in.get<uint8_t>();
  in.get(p.to.pid);
  in.get(p.source);
  in.get(p.to.nid);
  in.get(p.initiator);
  in.get(p.length);
  in.get(p.eager_length);
  in.get(p.token);
  in.get(p.match_bits);
  in.get(p.header_data);
  in.get(p.remote_offset);
  for (uint64_t &word : p.operand2) in.get(word);
  if (!is_operation(op) || (flags & ~(kRestricted | kFlush | kPcie)) != 0)
    return refuse(Refusal::kOperation);
  p.op = Op(op);
  p.restricted = flags & kRestricted;
  p.flush = flags & kFlush;
  p.pcie = flags & kPcie;
  if (p.source > kMaxNid || p.to.nid > kMaxNid || p.to.pid > kMaxPid || !is_own_name(p))
    return refuse(Refusal::kAddress);
  const bool atomic = p.op == Op::kAtomic || p.op == Op::kFetchAtomic;
  if (atomic && amo_size(p.amo_type) == 0) return refuse(Refusal::kOperation);
  if (atomic && p.length != amo_size(p.amo_type)) return refuse(Refusal::kLength);
  if (p.op == Op::kRendezvousPut && p.eager_length > p.length) return refuse(Refusal::kLength);
  frame.bytes = bytes_behind(p);
  return frame;
}

tl::expected<Frame, Refusal> parse_reply(Reader in) {
  Frame frame{.kind = Frame::Kind::kReply};
  Reply &r = frame.reply;
  r.rc = Rc(in.get<uint8_t>());
  const auto list = in.get<uint8_t>();
  in.get<uint16_t>();
  in.get(r.mlength);
  in.get(frame.bytes);
  in.get(r.token);
  for (uint64_t &word : r.fetched) in.get(word);
  if (list > uint8_t(List::kUnexpected)) return refuse(Refusal::kAddress);
  r.list = List(list);
  // What waits is answered later, and who cancels is the process that has asked.
  if (r.rc == Rc::kNone || r.rc == Rc::kCanceled) return refuse(Refusal::kAnswer);
  if (frame.bytes != 0 && frame.bytes != r.mlength) return refuse(Refusal::kLength);
  return frame;
}

}  // namespace

const char *text_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::kVersion:
      return "another version of the format";
    case Refusal::kKind:
      return "neither a packet nor a reply";
    case Refusal::kOperation:
      return "no such operation";
    case Refusal::kAddress:
      return "an address that cannot be";
    case Refusal::kLength:
      return "a length that the operation cannot have";
    case Refusal::kAnswer:
      return "an answer to what was not asked";
    case Refusal::kStranger:
      return "not the words of a NIC in software";
  }
  return "no frame";
}

void write_head(const Packet &p, std::span<uint8_t, kHeadSize> head) {
  Writer out(head);
  out.put(kVersion);
  out.put(uint8_t(Frame::Kind::kPacket));
  out.put(uint8_t(p.op));
  out.put(
      uint8_t((p.restricted ? kRestricted : 0) | (p.flush ? kFlush : 0) | (p.pcie ? kPcie : 0)));
  out.put(p.vni);
  out.put(p.to.index);
  out.put(p.rendezvous_id);
  out.put(uint8_t(p.amo_op));
  out.put(uint8_t(p.amo_type));
  out.put(uint8_t(p.cswap));
  out.put(uint8_t{0});
  out.put(p.to.pid);
  out.put(p.source);
  out.put(p.to.nid);
  out.put(p.initiator);
  out.put(p.length);
  out.put(p.eager_length);
  out.put(p.token);
  out.put(p.match_bits);
  out.put(p.header_data);
  out.put(p.remote_offset);
  for (const uint64_t word : p.operand2) out.put(word);
}

void write_head(const Reply &r, bool brings, std::span<uint8_t, kHeadSize> head) {
  Writer out(head);
  out.put(kVersion);
  out.put(uint8_t(Frame::Kind::kReply));
  out.put(uint8_t(r.rc));
  out.put(uint8_t(r.list));
  out.put(uint16_t{0});
  out.put(r.mlength);
  out.put(brings ? r.mlength : uint32_t{0});
  out.put(r.token);
  for (const uint64_t word : r.fetched) out.put(word);
}

tl::expected<Frame, Refusal> parse_head(std::span<const uint8_t, kHeadSize> head) {
  Reader in(head);
  if (in.get<uint8_t>() != kVersion) return refuse(Refusal::kVersion);
  switch (in.get<uint8_t>()) {
    case uint8_t(Frame::Kind::kPacket):
      return parse_packet(in);
    case uint8_t(Frame::Kind::kReply):
      return parse_reply(in);
    default:
      return refuse(Refusal::kKind);
  }
}

// ---- hello ----

void write_hello(const Hello &hello, std::span<uint8_t, kHelloSize> bytes) {
  Writer out(bytes);
  out.put(kMagic);
  out.put(kVersion);
  out.put(uint8_t(hello.kind));
  out.put(uint8_t(hello.rc));
  out.put(uint8_t{0});
  out.put(hello.vni);
  out.put(hello.to.pid);
  out.put(hello.to.nid);
  out.put(hello.port);
  out.put(hello.key);
}

tl::expected<Hello, Refusal> parse_hello(std::span<const uint8_t, kHelloSize> bytes) {
  const auto refuse_it = [](Refusal refusal) { return tl::unexpected(refusal); };
  Reader in(bytes);
  if (in.get<uint64_t>() != kMagic) return refuse_it(Refusal::kStranger);
  if (in.get<uint8_t>() != kVersion) return refuse_it(Refusal::kVersion);
  Hello hello;
  const auto kind = in.get<uint8_t>();
  hello.rc = Rc(in.get<uint8_t>());
  in.get<uint8_t>();
  in.get(hello.vni);
  in.get(hello.to.pid);
  in.get(hello.to.nid);
  in.get(hello.port);
  in.get(hello.key);
  if (kind < uint8_t(Hello::Kind::kCall) || kind > uint8_t(Hello::Kind::kRefused))
    return refuse_it(Refusal::kKind);
  hello.kind = Hello::Kind(kind);
  if (hello.to.nid > kMaxNid || hello.to.pid > kMaxPid) return refuse_it(Refusal::kAddress);
  const bool has_port =
      hello.kind == Hello::Kind::kWelcome || hello.kind == Hello::Kind::kElsewhere;
  if (has_port && hello.port == 0) return refuse_it(Refusal::kAddress);
  if (hello.kind == Hello::Kind::kRefused && (hello.rc == Rc::kNone || hello.rc == Rc::kOk))
    return refuse_it(Refusal::kAnswer);
  return hello;
}

}  // namespace weft::cxi
