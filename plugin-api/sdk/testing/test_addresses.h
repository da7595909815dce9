// SPDX-License-Identifier: BSD-2-Clause
// Addresses of all formats, numbered or from a seed. For tests only.
//
// Example (statements):
//    std::mt19937 random(1);
//    for (const uint32_t format : kNativeFormats) {
//      EXPECT_TRUE(some_address(format, random).names_peer());
//      EXPECT_NE(numbered_address(format, 1), numbered_address(format, 2));
//    }
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <random>

#include "plugin-api/sdk/addresses/address_codec.h"
#include "plugin-api/sdk/addresses/address_ib.h"
#include "weft/sdk/addresses/address.h"

namespace weft::sdk {

inline constexpr uint32_t kNativeFormats[] = {FI_SOCKADDR_IN, FI_SOCKADDR_IN6, FI_SOCKADDR_IB,
                                              FI_ADDR_IB_UD,  FI_ADDR_CXI,     kHostName};

// Writes the fields that every address of a peer must have; the others stay as they are.
inline void complete(uint32_t format, unsigned char *bytes, uint32_t number) {
  switch (format) {
    case FI_SOCKADDR_IN:
      store(bytes, 0, sa_family_t(AF_INET));
      store(bytes, offsetof(sockaddr_in, sin_port), htons(7471));
      store(bytes, offsetof(sockaddr_in, sin_addr), htonl(0x0a000000 + number));
      std::memset(bytes + 8, 0, 8);
      break;
    case FI_SOCKADDR_IN6:
      store(bytes, 0, sa_family_t(AF_INET6));
      store(bytes, offsetof(sockaddr_in6, sin6_port), htons(7471));
      store(bytes, offsetof(sockaddr_in6, sin6_flowinfo), uint32_t(0));
      store(bytes, offsetof(sockaddr_in6, sin6_addr), uint32_t(0xfd));
      store(bytes, offsetof(sockaddr_in6, sin6_addr) + 12, number);
      break;
    case FI_SOCKADDR_IB:
      store(bytes, 0, kFamilyIb);
      store(bytes, ib::kGid, uint32_t(0xfe));
      store(bytes, ib::kGid + 12, number);
      bytes[ib::kService + 5] = 6;
      break;
    case FI_ADDR_IB_UD:
      store(bytes, ib_ud::kQueuePair, 1 + number % 0xffffff);
      store(bytes, ib_ud::kGid + 8, 1 + number);
      bytes[ib_ud::kServiceLevel] &= 15;
      std::memset(bytes + ib_ud::kPadding, 0, 5);
      break;
    case FI_ADDR_CXI:  // PID 0 to 255, NIC: the rest
      store(bytes, 0, (number & 0xff) | (number >> 8 & 0xfffff) << 9);
      store(bytes, 6, uint16_t(0));
      break;
    case kHostName:  // the rest of the name are letters
      for (size_t i = 8; i < kHostNameSize; ++i) bytes[i] = uint8_t('a' + bytes[i] % 26);
      for (size_t i = 0; i < 8; ++i) bytes[i] = uint8_t('a' + (number >> 4 * i) % 16);
      bytes[kHostNameSize - 1] = 0;
      break;
    default:
      break;
  }
}

// Of a peer; different for different numbers below 2^24.
template <size_t kSize>
std::array<unsigned char, kSize> numbered_name(uint32_t format, uint32_t number) {
  std::array<unsigned char, kSize> name{};
  complete(format, name.data(), number);
  return name;
}

inline Address numbered_address(uint32_t format, uint32_t number) {
  const auto name = numbered_name<Address::kMaxSize>(format, number);
  return *read_address(format, name.data(), name.size());
}

// Any bytes where the format allows any.
inline Address some_address(uint32_t format, std::mt19937 &random) {
  alignas(8) unsigned char bytes[Address::kMaxSize];
  for (unsigned char &byte : bytes) byte = random() % 3 == 0 ? 0 : uint8_t(random());
  complete(format, bytes, random() % (1u << 24));
  return *read_address(format, bytes, sizeof bytes);
}

}  // namespace weft::sdk
