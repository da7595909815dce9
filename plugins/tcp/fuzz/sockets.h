// SPDX-License-Identifier: BSD-2-Clause
// The network of the stateful fuzz target: stream sockets of this process with IPv4 addresses,
// without a network, and a simulated clock.
//
// Example:
//    #include <sys/socket.h>
//    // A connection of process 7, made by libc's calls, as the plugin makes it.
//    inline int connect_to(uint8_t host, uint16_t port, uint64_t seed) {
//      reset_network(seed);  // ports, clock and random numbers start again
//      set_process(7);       // the result of getpid() from now on
//      const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
//      const sockaddr_in to = address_of(host, port);
//      connect(fd, reinterpret_cast<const sockaddr *>(&to), sizeof to);
//      pass_time(1'000'000);
//      return fd;
//    }
//
// The linker replaces libc's calls by these (--wrap). They use local sockets in the abstract name
// space, so that sending, receiving, epoll and the end of a stream are the kernel's. Not for the
// limits and delays of TCP.
#ifndef WEFT_PLUGINS_TCP_FUZZ_SOCKETS_H
#define WEFT_PLUGINS_TCP_FUZZ_SOCKETS_H

#include <netinet/in.h>

#include <cstdint>

namespace weft::tcp::fuzz {

void reset_network(uint64_t seed);
void set_process(int process);
void set_send_buffer(int bytes);  // of new sockets: small buffers fill up; 0: default
void pass_time(uint64_t ns);
sockaddr_in address_of(uint8_t host, uint16_t port);  // 10.0.0.host

}  // namespace weft::tcp::fuzz

#endif
