/* SPDX-License-Identifier: BSD-2-Clause */
/* A program whose RPATH leads to another libfabric. */
unsigned fi_version(void);

int main(void) {
  return fi_version() == 0;
}
