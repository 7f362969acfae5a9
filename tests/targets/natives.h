/* Numbers of the call counters, the same as in Native.java; also read by the assembler. */
#ifndef NPROF_TARGETS_NATIVES_H
#define NPROF_TARGETS_NATIVES_H

#define N_ADD 0
#define N_TWICE 1
#define N_OVER_INT 2
#define N_OVER_LONG 3
#define N_OVER_TEXT 4
#define N_MANY 5
#define N_INNER 6
#define N_UNDER_SCORE 7
#define N_UNDER_ONE 8
#define N_ACCENT 9
#define N_KANJI 10
#define N_SUPPLEMENTARY 11
#define N_HIDDEN 12
#define N_ALIAS 13
#define N_PUSH_FIRST 14
#define N_MOV_FIRST 15
#define N_MOV_THEN_PUSH 16
#define N_MOV_THEN_LOOP 17
#define N_TEST_THEN_BRANCH 18
#define N_ENDBR_FIRST 19
#define N_SUB_THEN_CALL 20
#define N_DESCEND 21
#define N_THROWN 22
#define N_PENDING 23
#define N_DIE 24
#define N_SLEEP 25
#define N_WORK 26
#define N_BLOCK 27
#define N_JUMP_OUTER 28
#define N_JUMP_INNER 29
#define N_LOCK_FIRST 30
#define N_ONWARD_LEAF 31
#define N_ONWARD_CALL 32
#define N_ONWARD_JUMP 33
#define N_ONWARD_AGAIN 34
#define N_MADE 35
#define N_COUNTERS 36

#ifndef __ASSEMBLER__
/*
 * Calls that have begun, by number. Exported, so that C code first loads its address: with nothing before the locked
 * addition many functions would begin with that, and the kernel refuses probes on locked instructions.
 */
extern long native_calls[N_COUNTERS];

static inline void count_call(int number) {
    __atomic_fetch_add(&native_calls[number], 1, __ATOMIC_RELAXED);
}
#endif

#endif
