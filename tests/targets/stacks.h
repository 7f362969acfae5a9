/* One thread that waits; also read by the assembler. */
#ifndef NPROF_TARGETS_STACKS_H
#define NPROF_TARGETS_STACKS_H

#define SLOTS 64
#define SLOT_SIZE 64
#define SLOT_SP 0
#define SLOT_FP 8
#define SLOT_ARMED 16

#endif
