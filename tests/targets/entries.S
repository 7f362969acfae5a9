/*
 * Natives of targets.Entries: what stands first in each is what decides where a probe can sit and what it costs.
 * Every function counts its call once, whatever path it takes.
 */
#include "natives.h"

.macro native name
    .globl  Java_targets_Entries_\name
    .type   Java_targets_Entries_\name, @function
    .p2align 4
Java_targets_Entries_\name:
.endm

.macro count number
    lock incq local_native_calls+8*\number(%rip)
.endm

    .text

/*
 * Room on both sides: bytes of the code around that look like a short branch to here would rightly keep a careful
 * tracer from moving its probes.
 */
    .skip 256, 0xcc

/* The kernel emulates push: the probe stays at the entry. */
native pushFirst
    push    %rbp
    mov     %rsp, %rbp
    count   N_PUSH_FIRST
    mov     $14, %eax
    pop     %rbp
    ret
    .size Java_targets_Entries_pushFirst, . - Java_targets_Entries_pushFirst

/* Nothing that the kernel emulates before the return: the probe has to stay on the mov. */
native movFirst
    mov     $15, %eax
    count   N_MOV_FIRST
    ret
    .size Java_targets_Entries_movFirst, . - Java_targets_Entries_movFirst

/* The probe can move to the push. */
native movThenPush
    mov     $16, %eax
    lea     1(%rax), %r11d
    push    %rbx
    count   N_MOV_THEN_PUSH
    pop     %rbx
    ret
    .size Java_targets_Entries_movThenPush, . - Java_targets_Entries_movThenPush

/* The kernel refuses probes on locked instructions. */
native lockFirst
    count   N_LOCK_FIRST
    mov     $30, %eax
    ret
    .size Java_targets_Entries_lockFirst, . - Java_targets_Entries_lockFirst

/* The nop is emulated, but a branch target: a probe there would count three times. */
native movThenLoop
    mov     $3, %eax
1:  nop
    dec     %eax
    jnz     1b
    count   N_MOV_THEN_LOOP
    mov     $17, %eax
    ret
    .size Java_targets_Entries_movThenLoop, . - Java_targets_Entries_movThenLoop

/* The conditional jump is emulated and on every path; what follows it is not. */
native testThenBranch
    test    %dl, %dl
    jz      1f
    nop
1:  count   N_TEST_THEN_BRANCH
    mov     $18, %eax
    ret
    .size Java_targets_Entries_testThenBranch, . - Java_targets_Entries_testThenBranch

/* What a compiler with -fcf-protection puts first. */
native endbrFirst
    endbr64
    push    %rbp
    count   N_ENDBR_FIRST
    mov     $19, %eax
    pop     %rbp
    ret
    .size Java_targets_Entries_endbrFirst, . - Java_targets_Entries_endbrFirst

/* The call is emulated, but the return address is no longer at the stack pointer: the probe must not move there. */
native subThenCall
    sub     $8, %rsp
    call    count_sub_then_call
    add     $8, %rsp
    mov     $20, %eax
    ret
    .size Java_targets_Entries_subThenCall, . - Java_targets_Entries_subThenCall

    .type count_sub_then_call, @function
count_sub_then_call:
    count   N_SUB_THEN_CALL
    ret
    .size count_sub_then_call, . - count_sub_then_call

    .skip 256, 0xcc

    .section .note.GNU-stack,"",@progbits
