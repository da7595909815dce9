// SPDX-License-Identifier: BSD-2-Clause
#include "reader.h"

#include "plugin-api/sdk/testing/test_rounds.h"
#include "test_frames.h"

namespace weft::tcp {
namespace {

using namespace testing;

constexpr EndpointKind kRdm1 = EndpointKind::kRdm1;
constexpr ByteOrder kNative = ByteOrder::kNative;

struct Stream {
  std::vector<Frame> frames;
  Bytes bytes;
};

Stream random_stream(Random &random, EndpointKind kind, ByteOrder order, size_t frames,
                     size_t max_payload) {
  Stream stream;
  for (size_t i = 0; i < frames; ++i) {
    stream.frames.push_back(random_frame(random, kind, max_payload));
    const Bytes bytes = wire_bytes(stream.frames.back(), order, static_cast<uint8_t>(i));
    stream.bytes.insert(stream.bytes.end(), bytes.begin(), bytes.end());
  }
  return stream;
}

// One frame of every form that stock peers send.
Bytes captured_stream() {
  Bytes stream;
  const auto add = [&stream](const char *capture, size_t payload = 0) {
    const Bytes bytes = hex(capture);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    for (size_t i = 0; i < payload; ++i) stream.push_back(static_cast<uint8_t>(i));
  };
  add(captures::kMessage);
  add(captures::kFin);
  add(captures::kAck);
  add(captures::kMessageData);
  add(captures::kTaggedData);
  add(captures::kWriteData);
  add(captures::kReadRequest);
  add(captures::kReadResponse);
  add(captures::kTaggedStaleHeader, 200);
  add(captures::kReadyToSend);
  add(captures::kClearToSend);
  add(captures::kRendezvousHeader, 20000);
  add(captures::kAck);
  return stream;
}

void expect_captured(const CollectingSink &sink) {
  ASSERT_EQ(sink.frames.size(), 13u);
  EXPECT_EQ(sink.frames[0].payload, Bytes(16, 0));
  EXPECT_EQ(sink.frames[1].payload, hex("66 69 6e 00"));
  EXPECT_TRUE(sink.frames[2].header.is_ack());
  EXPECT_EQ(sink.frames[4].header.tag, 0x1001u);
  EXPECT_EQ(sink.frames[5].header.rma[0].key, 0xc0de0001u);
  EXPECT_EQ(sink.frames[6].header.rma_length(), 32u);
  EXPECT_EQ(sink.frames[7].payload.size(), 32u);
  EXPECT_EQ(sink.frames[8].payload[199], 199);
  EXPECT_EQ(sink.frames[9].header.rendezvous_length, 20000u);
  EXPECT_EQ(sink.frames[10].header.op, Op::kClearToSend);
  ASSERT_EQ(sink.frames[11].payload.size(), 20000u);
  EXPECT_EQ(sink.frames[11].payload[19999], static_cast<uint8_t>(19999));
  EXPECT_TRUE(sink.frames[12].header.is_ack());
}

void expect_same(const std::vector<Frame> &sent, const std::vector<Frame> &received) {
  ASSERT_EQ(sent.size(), received.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    SCOPED_TRACE(i);
    testing::expect_same(sent[i], received[i]);
  }
}

TEST(Reader, StockPeerInOnePiece) {
  CollectingSink sink;
  CollectingReader reader(kRdm1, kNative);
  const Bytes bytes = captured_stream();
  EXPECT_EQ(reader.on_bytes(bytes, sink), bytes.size());
  expect_captured(sink);
  EXPECT_TRUE(reader.idle());
  EXPECT_TRUE(reader.direct().empty());
}

TEST(Reader, StockPeerByteByByte) {
  CollectingSink sink;
  CollectingReader reader(kRdm1, kNative);
  for (uint8_t byte : captured_stream()) ASSERT_EQ(reader.on_bytes({&byte, 1}, sink), 1u);
  expect_captured(sink);
  EXPECT_TRUE(reader.idle());
}

TEST(Reader, StockPeerCutAnywhere) {
  const Bytes bytes = captured_stream();
  // The beginnings of the last, long frames suffice.
  for (size_t cut = 0; cut <= 1100; ++cut) {
    CollectingSink sink;
    CollectingReader reader(kRdm1, kNative);
    ASSERT_TRUE(feed(reader, sink, std::span(bytes).first(cut)));
    ASSERT_TRUE(feed(reader, sink, std::span(bytes).subspan(cut)));
    expect_captured(sink);
  }
}

TEST(Reader, ShortStreamsCutAtEveryPairOfPlaces) {
  for (uint64_t seed = 0; seed < sdk::rounds(12); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const ByteOrder order = seed % 2 == 0 ? kNative : ByteOrder::kNetwork;
    const Stream stream = random_stream(random, kRdm1, order, 4, 20);
    const std::span<const uint8_t> bytes(stream.bytes);
    for (size_t a = 0; a <= bytes.size(); ++a) {
      for (size_t b = a; b <= bytes.size(); ++b) {
        CollectingSink sink;
        CollectingReader reader(kRdm1, order);
        ASSERT_TRUE(feed(reader, sink, bytes.first(a)));
        ASSERT_TRUE(feed(reader, sink, bytes.subspan(a, b - a)));
        ASSERT_TRUE(feed(reader, sink, bytes.subspan(b)));
        ASSERT_TRUE(reader.idle());
        expect_same(stream.frames, sink.frames);
      }
    }
  }
}

TEST(Reader, RandomCutsKindsOrdersAndTargets) {
  constexpr EndpointKind kinds[] = {EndpointKind::kMsg, EndpointKind::kMsgTagged,
                                    EndpointKind::kRdm0, EndpointKind::kRdm1};
  for (uint64_t seed = 0; seed < sdk::rounds(3000); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const EndpointKind kind = kinds[random.below(4)];
    const ByteOrder order = random.one_in(2) ? kNative : ByteOrder::kNetwork;
    const Stream stream = random_stream(random, kind, order, 1 + random.below(20), 300);
    CollectingSink sink;
    sink.split = [&random](const FrameHeader &header) {
      std::vector<size_t> lengths;
      size_t left = header.payload_size;
      if (random.one_in(5)) left = random.below(left + 1);  // truncated
      const size_t count = random.below(kMaxTargetVectors) + 1;
      for (size_t i = 0; i < count; ++i) {
        lengths.push_back(i + 1 == count ? left : random.below(left + 1));
        left -= lengths.back();
      }
      return lengths;
    };
    sink.verdict = [&random](const FrameHeader &) {
      return random.one_in(3) ? Verdict::kStall : Verdict::kAccept;
    };
    CollectingReader reader(kind, order);
    for (size_t at = 0; at < stream.bytes.size();) {
      size_t n =
          std::min<size_t>(1 + random.below(random.one_in(3) ? 400 : 24), stream.bytes.size() - at);
      if (random.one_in(2)) {  // as readv() does: straight to its place, only then through a buffer
        const size_t placed = place(reader.direct(), std::span(stream.bytes).subspan(at, n));
        ASSERT_EQ(placed, std::min<uint64_t>(n, reader.direct_left()));
        reader.on_direct(placed, sink);
        at += placed;
        n -= placed;
      }
      ASSERT_TRUE(feed(reader, sink, std::span(stream.bytes).subspan(at, n)));
      at += n;
    }
    ASSERT_TRUE(reader.idle());
    expect_same(stream.frames, sink.frames);
  }
}

TEST(Reader, StallsAtEveryHeaderAndTakesNothingMore) {
  const Bytes bytes = captured_stream();
  for (size_t stalls = 1; stalls < 4; ++stalls) {
    CollectingSink sink;
    size_t left = stalls;
    sink.verdict = [&](const FrameHeader &) {
      if (left == 0) {
        left = stalls;
        return Verdict::kAccept;
      }
      --left;
      return Verdict::kStall;
    };
    CollectingReader reader(kRdm1, kNative);
    size_t at = 0;
    size_t stopped = 0;
    while (at < bytes.size() || reader.stalled()) {
      const size_t n = reader.on_bytes(std::span(bytes).subspan(at), sink);
      at += n;
      if (!reader.stalled()) continue;
      ++stopped;
      EXPECT_FALSE(reader.in_payload());
      EXPECT_FALSE(reader.idle());
      EXPECT_TRUE(reader.direct().empty());
      EXPECT_EQ(reader.direct_left(), 0u);
      EXPECT_EQ(reader.discard_left(), 0u);
      // Bytes that are offered now are not consumed, and the sink is not called.
      const size_t asked = sink.asked;
      EXPECT_EQ(reader.on_bytes(std::span(bytes).subspan(at), sink), 0u);
      EXPECT_EQ(sink.asked, asked);
      reader.resume(sink);
      EXPECT_EQ(sink.asked, asked + 1);
    }
    expect_captured(sink);
    EXPECT_EQ(stopped, 13 * stalls);
  }
}

TEST(Reader, StalledHeaderIsTheOneAskedAgain) {
  CollectingSink sink;
  bool room = false;
  sink.verdict = [&](const FrameHeader &) { return room ? Verdict::kAccept : Verdict::kStall; };
  CollectingReader reader(kRdm1, kNative);
  const Bytes bytes = hex(captures::kWriteData);
  EXPECT_EQ(reader.on_bytes(bytes, sink), 48u);
  ASSERT_TRUE(reader.stalled());
  EXPECT_EQ(reader.stalled_header().rma[0].key, 0xc0de0001u);
  reader.resume(sink);
  EXPECT_TRUE(reader.stalled());
  room = true;
  reader.resume(sink);
  EXPECT_FALSE(reader.stalled());
  EXPECT_TRUE(reader.in_payload());
  EXPECT_EQ(reader.direct_left(), 16u);
  reader.resume(sink);  // no effect
  EXPECT_EQ(sink.asked, 3u);
  EXPECT_EQ(reader.on_bytes(std::span(bytes).subspan(48), sink), 16u);
  ASSERT_EQ(sink.frames.size(), 1u);
  EXPECT_EQ(sink.frames[0].payload, Bytes(bytes.begin() + 48, bytes.end()));
  EXPECT_EQ(sink.frames[0].header.rma[0].length, 16u);
}

TEST(Reader, FrameWithoutPayloadEndsOnResume) {
  CollectingSink sink;
  bool room = false;
  sink.verdict = [&](const FrameHeader &) { return room ? Verdict::kAccept : Verdict::kStall; };
  CollectingReader reader(kRdm1, kNative);
  EXPECT_EQ(reader.on_bytes(hex(captures::kReadRequest), sink), 64u);
  EXPECT_TRUE(sink.frames.empty());
  room = true;
  reader.resume(sink);
  ASSERT_EQ(sink.frames.size(), 1u);
  EXPECT_EQ(sink.frames[0].header.rma[1].address, 0x1000u);
  EXPECT_TRUE(reader.idle());
}

TEST(Reader, DirectAcrossVectors) {
  Frame frame;
  frame.payload.resize(100);
  std::iota(frame.payload.begin(), frame.payload.end(), uint8_t{0});
  frame.header.payload_size = 100;
  const Bytes bytes = wire_bytes(frame, kNative, 0);
  CollectingSink sink;
  sink.split = [](const FrameHeader &) { return std::vector<size_t>{0, 30, 0, 50}; };
  CollectingReader reader(kRdm1, kNative);
  reader.on_bytes({bytes.data(), 16}, sink);
  ASSERT_EQ(reader.direct().size(), 3u);  // the empty one in front is gone
  EXPECT_EQ(reader.direct_left(), 80u);
  EXPECT_EQ(reader.discard_left(), 20u);
  reader.on_direct(0, sink);
  EXPECT_EQ(reader.direct_left(), 80u);

  ASSERT_EQ(place(reader.direct(), std::span(frame.payload).first(10)), 10u);
  reader.on_direct(10, sink);
  EXPECT_EQ(reader.direct()[0].iov_len, 20u);
  ASSERT_EQ(place(reader.direct(), std::span(frame.payload).subspan(10, 30)), 30u);
  reader.on_direct(30, sink);
  ASSERT_EQ(reader.direct().size(), 1u);
  EXPECT_EQ(reader.direct()[0].iov_len, 40u);
  ASSERT_EQ(place(reader.direct(), std::span(frame.payload).subspan(40)), 40u);
  reader.on_direct(40, sink);
  EXPECT_TRUE(reader.direct().empty());
  EXPECT_TRUE(reader.in_payload());
  EXPECT_TRUE(sink.frames.empty());
  EXPECT_EQ(reader.on_bytes(std::span(frame.payload).subspan(80), sink), 20u);
  ASSERT_EQ(sink.frames.size(), 1u);
  EXPECT_EQ(sink.frames[0].dropped, 20u);
  EXPECT_EQ(sink.frames[0].payload, Bytes(frame.payload.begin(), frame.payload.begin() + 80));
  EXPECT_TRUE(reader.idle());
}

TEST(Reader, DirectOutsideAPayloadIsNothing) {
  CollectingSink sink;
  CollectingReader reader(kRdm1, kNative);
  EXPECT_TRUE(reader.direct().empty());
  reader.on_direct(5, sink);
  EXPECT_TRUE(reader.idle());
  EXPECT_EQ(reader.on_bytes(std::span<const uint8_t>(), sink), 0u);
  const Bytes bytes = hex(captures::kMessage);
  reader.on_bytes({bytes.data(), 9}, sink);
  EXPECT_FALSE(reader.idle());
  EXPECT_TRUE(reader.direct().empty());
  EXPECT_EQ(reader.discard_left(), 0u);
}

TEST(Reader, DiscardsWholePayloads) {
  CollectingSink sink;
  sink.split = [](const FrameHeader &) { return std::vector<size_t>{}; };
  const Bytes bytes = captured_stream();
  CollectingReader reader(kRdm1, kNative);
  ASSERT_TRUE(feed(reader, sink, bytes));
  ASSERT_EQ(sink.frames.size(), 13u);
  EXPECT_EQ(sink.frames[11].dropped, 20000u);
  EXPECT_TRUE(sink.frames[11].payload.empty());
}

TEST(Reader, EnormousFrameIsOnlyCounted) {
  FrameHeader header;
  header.payload_size = UINT64_MAX - 16;
  Bytes bytes(16);
  encode_header(header, kNative, 0, bytes.data());
  CollectingSink sink;
  sink.split = [](const FrameHeader &) { return std::vector<size_t>{4}; };
  CollectingReader reader(kRdm1, kNative);
  reader.on_bytes(bytes, sink);
  EXPECT_EQ(reader.discard_left(), UINT64_MAX - 20);
  const Bytes more(1000, 1);
  EXPECT_EQ(reader.on_bytes(more, sink), 1000u);
  EXPECT_EQ(reader.discard_left(), UINT64_MAX - 1016);
}

TEST(Reader, RejectsStopTheStreamWhereverItIsCut) {
  const Bytes good = hex(captures::kMessage);
  Bytes bytes = good;
  const Bytes bad = hex("03 09 00 00 00 00 10 00 10 00 00 00 00 00 00 00");
  bytes.insert(bytes.end(), bad.begin(), bad.end());
  bytes.insert(bytes.end(), good.begin(), good.end());
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    CollectingSink sink;
    CollectingReader reader(kRdm1, kNative);
    const bool first = feed(reader, sink, std::span(bytes).first(cut));
    const bool second = first && feed(reader, sink, std::span(bytes).subspan(cut));
    EXPECT_EQ(first, cut < good.size() + 16);
    EXPECT_FALSE(second);
    EXPECT_EQ(reader.rejected(), Reject::kOp);
    EXPECT_EQ(sink.frames.size(), 1u);
    EXPECT_EQ(sink.asked, 1u);
    // No later call changes that.
    EXPECT_EQ(reader.on_bytes(good, sink), 0u);
    reader.resume(sink);
    reader.on_direct(1, sink);
    EXPECT_EQ(sink.asked, 1u);
    EXPECT_FALSE(reader.idle());
    EXPECT_TRUE(reader.direct().empty());
  }
}

TEST(Reader, BadHeaderSizeIsSeenAtSixteenBytes) {
  for (int size : {0, 15, 121, 255}) {
    Bytes bytes = hex(captures::kMessage);
    bytes[6] = static_cast<uint8_t>(size);
    for (size_t cut = 0; cut <= 16; ++cut) {
      CollectingSink sink;
      CollectingReader reader(kRdm1, kNative);
      feed(reader, sink, std::span(bytes).first(cut));
      EXPECT_EQ(reader.rejected().has_value(), cut == 16);
      if (cut < 16) feed(reader, sink, std::span(bytes).subspan(cut));
      EXPECT_EQ(reader.rejected(), Reject::kHeaderSize);
      EXPECT_EQ(sink.asked, 0u);
    }
  }
}

TEST(Reader, SinkMayRefuse) {
  for (bool stall_first : {false, true}) {
    CollectingSink sink;
    sink.verdict = [&](const FrameHeader &) {
      return stall_first && sink.asked == 1 ? Verdict::kStall : Verdict::kReject;
    };
    CollectingReader reader(kRdm1, kNative);
    EXPECT_FALSE(feed(reader, sink, hex(captures::kWriteData)));
    EXPECT_EQ(reader.rejected(), Reject::kRefused);
    EXPECT_TRUE(sink.frames.empty());
    EXPECT_FALSE(reader.stalled());
  }
}

// A target of another size than the payload would make the reader lose the frame boundary.
TEST(Reader, TargetMustBeThePayload) {
  struct Liar {
    std::vector<size_t> lengths;
    uint64_t discard = 0;
    size_t ended = 0;
    Verdict on_header(const FrameHeader &, Target &target) {
      for (size_t length : lengths) target.add(this, length);
      target.discard = discard;
      return Verdict::kAccept;
    }
    void on_frame_end(const FrameHeader &) { ++ended; }
  };
  const auto check = [](std::vector<size_t> lengths, uint64_t discard) {
    Liar liar{std::move(lengths), discard};
    Reader<Liar> reader(kRdm1, kNative);
    const Bytes bytes = hex(captures::kMessage);
    reader.on_bytes({bytes.data(), 16}, liar);
    EXPECT_TRUE(reader.direct().empty() || !reader.rejected());
    return reader.rejected();
  };
  EXPECT_EQ(check({16}, 0), std::nullopt);
  EXPECT_EQ(check({10, 0, 6}, 0), std::nullopt);
  EXPECT_EQ(check({}, 16), std::nullopt);
  EXPECT_EQ(check({15}, 0), Reject::kTarget);
  EXPECT_EQ(check({17}, 0), Reject::kTarget);
  EXPECT_EQ(check({10, 7}, 0), Reject::kTarget);
  EXPECT_EQ(check({16}, 1), Reject::kTarget);
  EXPECT_EQ(check({}, 17), Reject::kTarget);
  EXPECT_EQ(check({16}, UINT64_MAX), Reject::kTarget);
  EXPECT_EQ(check({SIZE_MAX, 17}, 0), Reject::kTarget);
  EXPECT_EQ(check({4, 4, 4, 4, 0}, 0), std::nullopt);
  EXPECT_EQ(check({4, 4, 4, 2, 2}, 0), Reject::kTarget);  // the fifth vector has no place
}

// The target of a sink that does not accept is ignored.
TEST(Reader, IgnoresTheTargetOfAStall) {
  struct Undecided {
    bool room = false;
    uint8_t buffer[16];
    Verdict on_header(const FrameHeader &, Target &target) {
      EXPECT_EQ(target.count, 0);
      EXPECT_EQ(target.discard, 0u);
      target.add(buffer, 16);
      if (room) return Verdict::kAccept;
      target.discard = 7;
      return Verdict::kStall;
    }
    void on_frame_end(const FrameHeader &) {}
  };
  Undecided sink;
  Reader<Undecided> reader(kRdm1, kNative);
  const Bytes bytes = hex(captures::kMessage);
  EXPECT_EQ(reader.on_bytes(bytes, sink), 16u);
  ASSERT_TRUE(reader.stalled());
  EXPECT_TRUE(reader.direct().empty());
  EXPECT_EQ(reader.discard_left(), 0u);
  sink.room = true;
  reader.resume(sink);
  EXPECT_EQ(reader.direct_left(), 16u);
}

TEST(Target, FitTakesWhatFits) {
  uint8_t memory[64];
  const iovec buffers[] = {{memory, 10}, {memory + 10, 0}, {memory + 20, 20}};
  Target target;
  EXPECT_EQ(target.fit(buffers, 25), 25u);
  EXPECT_EQ(target.discard, 0u);
  ASSERT_EQ(target.count, 3);
  EXPECT_EQ(target.iov[2].iov_base, memory + 20);
  EXPECT_EQ(target.iov[2].iov_len, 15u);
  EXPECT_EQ(target.fit(buffers, 50), 30u);
  EXPECT_EQ(target.discard, 20u);
  EXPECT_EQ(target.fit(buffers, 0), 0u);
  EXPECT_EQ(target.count, 0);
  EXPECT_EQ(target.fit(buffers, 10), 10u);
  EXPECT_EQ(target.count, 1);
  EXPECT_EQ(target.fit({}, 7), 0u);
  EXPECT_EQ(target.discard, 7u);
  const std::vector<iovec> many(6, iovec{memory, 2});
  EXPECT_EQ(target.fit(many, 12), 8u);
  EXPECT_EQ(target.discard, 4u);
}

TEST(Reader, StartsAnew) {
  CollectingSink sink;
  CollectingReader reader(EndpointKind::kMsg, kNative);
  feed(reader, sink, hex(captures::kTaggedData));
  EXPECT_EQ(reader.rejected(), Reject::kOpNotAllowed);
  reader.start(kRdm1, kNative);
  EXPECT_TRUE(feed(reader, sink, hex(captures::kTaggedData)));
  EXPECT_EQ(sink.frames.size(), 1u);
}

// An endpoint that is its own sink has a reader as a member, where its type is incomplete.
struct Endpoint {
  Reader<Endpoint> reader{kRdm1, kNative};
  size_t frames = 0;
  Verdict on_header(const FrameHeader &header, Target &target) {
    target.discard = header.payload_size;
    return Verdict::kAccept;
  }
  void on_frame_end(const FrameHeader &) { ++frames; }
};

TEST(Reader, MemberOfItsSink) {
  Endpoint endpoint;
  endpoint.reader.on_bytes(hex(captures::kMessage), endpoint);
  EXPECT_EQ(endpoint.frames, 1u);
}

}  // namespace
}  // namespace weft::tcp
