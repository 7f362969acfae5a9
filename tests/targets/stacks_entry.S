/* The native of targets.Stacks that waits: its first instructions note the registers with which it was entered. */
#include "stacks.h"

    .text
    .globl  Java_targets_Stacks_park
    .type   Java_targets_Stacks_park, @function
    .p2align 4
/* (env, class, slot) */
Java_targets_Stacks_park:
    movslq  %edx, %rax
    shl     $6, %rax
    lea     stack_slots(%rip), %rcx
    add     %rcx, %rax
    cmpl    $0, SLOT_ARMED(%rax)
    je      1f
    mov     %rsp, SLOT_SP(%rax)
    mov     %rbp, SLOT_FP(%rax)
    mov     %rax, %rdi
    jmp     wait_in_slot
1:  xor     %eax, %eax
    ret
    .size Java_targets_Stacks_park, . - Java_targets_Stacks_park

    .section .note.GNU-stack,"",@progbits
