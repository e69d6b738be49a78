/* What is read next is for no type; see vectors.h. */
#undef T
#undef INTEGER
#undef UNSIGNED
#undef FN
#undef X86
#undef vec
#undef mask
#undef bits
#undef unaligned
#undef lane_block
#undef LANES
