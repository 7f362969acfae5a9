/*
 * Natives of targets.Onward, which go on to a native function themselves and leave r10 alone: whatever was in it when
 * they were called is in it there.
 */
#include "natives.h"

.macro native name
    .globl  Java_targets_Onward_\name
    .type   Java_targets_Onward_\name, @function
    .p2align 4
Java_targets_Onward_\name:
here_\name:
.endm

.macro count number
    lock incq local_native_calls+8*\number(%rip)
.endm

    .text
    .skip 256, 0xcc

/* Calls the one behind it, which is as far away as their calls are apart on the stack. */
native call
    push    %rbp
    push    %rbp
    push    %rbp
    count   N_ONWARD_CALL
    call    here_leaf
    pop     %rbp
    pop     %rbp
    pop     %rbp
    ret
    .size Java_targets_Onward_call, . - Java_targets_Onward_call

/* A probe can move to the push. */
native leaf
    mov     $31, %eax
    push    %rbp
    count   N_ONWARD_LEAF
    pop     %rbp
    ret
    .size Java_targets_Onward_leaf, . - Java_targets_Onward_leaf

/* As its last act. */
native jump
    push    %rbp
    count   N_ONWARD_JUMP
    pop     %rbp
    jmp     here_leaf
    .size Java_targets_Onward_jump, . - Java_targets_Onward_jump

/* Calls itself, as often as its argument says. */
native again
    push    %rbp
    count   N_ONWARD_AGAIN
    mov     $34, %eax
    dec     %edx
    jle     1f
    call    here_again
1:  pop     %rbp
    ret
    .size Java_targets_Onward_again, . - Java_targets_Onward_again

    .skip 256, 0xcc

    .section .note.GNU-stack,"",@progbits
