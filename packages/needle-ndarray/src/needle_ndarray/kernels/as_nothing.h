/* What is read next is for no type; see vectors.h. */
#undef T
#undef INTEGER
#undef FN
#undef X86
#undef vec
#undef mask
#undef unaligned
#undef lane_block
#undef LANES
