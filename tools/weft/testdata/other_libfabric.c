/* SPDX-License-Identifier: BSD-2-Clause */
/* Another libfabric.so.1 than weft's, for `weft why -- COMMAND`. */
__attribute__((visibility("default"))) unsigned fi_version(void);
unsigned fi_version(void) {
  return 1 << 16 | 17;
}
