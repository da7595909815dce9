// SPDX-License-Identifier: BSD-2-Clause
// The network of the stateful fuzz target: stream sockets of this process that have IPv4 addresses
// and need no network, and a clock that stands still.
//
//   reset_network(seed);                              // ports, clock and random numbers start
//   again set_process(7);                                   // what getpid() says from now on int
//   fd = socket(AF_INET, SOCK_STREAM, 0);          // as ever: the plugin notices nothing
//   pass_time(1'000'000);
//
// The linker puts these in the place of libc's calls (--wrap). Below they are sockets of the local
// domain in its abstract name space, so that send, receive, epoll and what happens at the end of a
// stream are the kernel's. Not in here: the limits and delays of TCP.
#ifndef WEFT_PLUGINS_TCP_FUZZ_SOCKETS_H
#define WEFT_PLUGINS_TCP_FUZZ_SOCKETS_H

#include <netinet/in.h>

#include <cstdint>

namespace weft::tcp::fuzz {

void reset_network(uint64_t seed);
void set_process(int process);
void set_send_buffer(int bytes);  // of sockets made from now on: small ones fill up; 0: default
void pass_time(uint64_t ns);
sockaddr_in address_of(uint8_t host, uint16_t port);  // 10.0.0.host

}  // namespace weft::tcp::fuzz

#endif
