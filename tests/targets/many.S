/*
 * The two thousand natives of targets.Many, which the harness declares: m0, m1 and so on.
 */
    .text
    .altmacro

.macro native number
    .globl  Java_targets_Many_m\number
    .type   Java_targets_Many_m\number, @function
    .p2align 4
Java_targets_Many_m\number:
    push    %rbp
    mov     $\number, %eax
    pop     %rbp
    ret
    .size Java_targets_Many_m\number, . - Java_targets_Many_m\number
.endm

    .set number, 0
    .rept 2000
    native %number
    .set number, number + 1
    .endr

    .section .note.GNU-stack, "", @progbits
